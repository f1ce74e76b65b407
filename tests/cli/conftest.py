"""The real program, from pipes and in a real pseudo-terminal.

HEADRACE_BINARY names the program, HEADRACE_TEST_MODELS a folder of pulled models for the tests that need one.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from pathlib import Path

import pytest

kRepository = Path(__file__).resolve().parents[2]
kBinary = os.environ.get("HEADRACE_BINARY", str(kRepository / "build/release/bin/headrace"))
sys.path.insert(0, str(kRepository / "tests/http"))

import tiny_model  # noqa: E402


def environment(**changes):
    """Ours without what steers the program or its language; None takes a variable away."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("HEADRACE_", "LC_")) and name not in ("LANG", "COLUMNS")}
    kept |= {"TERM": "xterm"} | changes
    return {name: value for name, value in kept.items() if value is not None}


class Screen:
    """What a terminal shows of the bytes written to it: as much of xterm as the program and libedit use."""

    def __init__(self, columns):
        self.columns = columns
        self.lines = [[]]
        self.row = self.column = 0

    def put(self, character):
        width = 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self.column + width > self.columns:
            self.newline()
        line = self.lines[self.row]
        line.extend(" " * (self.column - len(line)))
        line[self.column:self.column + width] = [character] + [""] * (width - 1)
        self.column += width

    def newline(self):
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.lines):
            self.lines.append([])

    def control(self, number, letter):
        count = int(number or 1)
        if letter == "D":
            self.column = max(0, self.column - count)
        elif letter == "C":
            self.column += count
        elif letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "K":
            del self.lines[self.row][self.column:]

    def feed(self, text):
        for match in re.finditer(r"\x1b\[\??([0-9;]*)([A-Za-z@~])|(\r?\n)|(.)", text, re.S):
            number, letter, newline, character = match.groups()
            if letter:
                self.control(number, letter)
            elif newline:
                if newline == "\n":
                    column = self.column
                    self.newline()
                    self.column = column
                else:
                    self.newline()
            elif character == "\r":
                self.column = 0
            elif character == "\b":
                self.column = max(0, self.column - 1)
            elif character >= " ":
                self.put(character)
        return self

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)


class Terminal:
    """The program in a pseudo-terminal of its own."""

    def __init__(self, *arguments, columns=80, **changes):
        self.columns = columns
        self.written = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))  # before the program asks
            os.execve(kBinary, [kBinary, *map(str, arguments)], environment(**changes))
        self.status = None
        self.undecoded = b""

    def send(self, text):
        data = text.encode()
        while data:
            data = data[os.write(self.descriptor, data):]

    def pump(self, seconds):
        if not select.select([self.descriptor], [], [], seconds)[0]:
            return True
        try:
            data = self.undecoded + os.read(self.descriptor, 65536)
        except OSError:  # the program has closed its side
            return False
        text = data.decode(errors="ignore")
        self.undecoded = b"" if data[-1:] < b"\x80" else data[len(text.encode()):][-3:]
        self.written += text
        return len(data) > 0

    def wait_for(self, text, seconds=60):
        """Reads until `text` has been written after all that was waited for before."""
        end = time.monotonic() + seconds
        while text not in self.written:
            assert time.monotonic() < end, f"no {text!r} in {seconds} s, but:\n{self.written}"
            assert self.pump(0.1), f"the program ended without {text!r}:\n{self.written}"
        before, _, self.written = self.written.partition(text)
        return before

    def close(self, seconds=60):
        """Waits for the end: the exit status, or minus the signal."""
        end = time.monotonic() + seconds
        while self.status is None:
            self.pump(0.05)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"still running after {seconds} s:\n{self.written}")
        while self.pump(0) and select.select([self.descriptor], [], [], 0)[0]:
            pass
        os.close(self.descriptor)
        return self.status

    def kill(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.descriptor)


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments, **options):
        opened.append(Terminal(*arguments, **options))
        return opened[-1]

    yield start
    for each in opened:
        each.kill()


@pytest.fixture(scope="session")
def headrace(tmp_path_factory):
    """Runs the program to its end; by default in an empty store and without input."""
    store = tmp_path_factory.mktemp("store")

    def run(*arguments, columns=None, **options):
        changes = {"HEADRACE_STORE": str(store), "COLUMNS": columns} | options.pop("env", {})
        options = {"input": "", "timeout": 120} | options
        if "stdin" in options:
            options.pop("input")
        if "stdout" not in options:
            options["stdout"] = subprocess.PIPE
        return subprocess.run([kBinary, *map(str, arguments)], env=environment(**changes), text=True,
                              stderr=subprocess.PIPE, check=False, **options)

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model that never ends an answer by itself, with a context of 131072 tokens."""
    folder = tiny_model.write(tmp_path_factory.mktemp("model") / "endless")
    config = json.loads((folder / "config.json").read_text())
    del config["eos_token_id"]
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 131072}))
    (folder / "generation_config.json").write_text("{}")
    texts = json.loads((folder / "tokenizer_config.json").read_text())
    del texts["eos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(texts))
    return folder


@pytest.fixture(scope="session")
def base_model(tmp_path_factory, model):
    """The same without a chat template."""
    folder = tmp_path_factory.mktemp("model") / "base"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    return folder
