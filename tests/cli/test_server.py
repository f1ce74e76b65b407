"""`run`, `chat`, `ps` and `stop` against a server that runs already: ours, and stand-ins that go wrong."""

import json
import re
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import environment, kBinary


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """The address of `headrace serve` with a key, and the tiny model under a name."""
    log = tmp_path_factory.mktemp("server") / "log"
    with open(log, "w") as lines:
        process = subprocess.Popen([kBinary, "serve", model, "--port", "0", "--alias", "tiny", "--context", "512"],
                                   env=environment(HEADRACE_API_KEY="secret"), stdout=lines, stderr=lines)
    address = None
    while address is None:
        assert process.poll() is None, log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        address = found.group(0) if found else None
    yield address
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, log.read_text()


@pytest.fixture(scope="module")
def ask(headrace, server):
    def run(command, *words, **options):
        keyed = {"HEADRACE_API_KEY": "secret"} | options.pop("env", {})
        return headrace(command, "--server", server, *words, env=keyed, **options)

    return run


def test_a_server_answers_as_the_model_itself_does(headrace, model, ask):
    for words in (["Hi"], ["--raw", "once upon"], ["--system", "Be brief", "Hi"], ["--stop", "e", "Hi"]):
        limits = ["--temperature", 0, "--max-tokens", 12]
        here = headrace("run", "-m", model, *limits, *words)
        there = ask("run", *limits, *words)
        assert (there.returncode, there.stdout) == (0, here.stdout), there.stderr


def test_equal_seeds_draw_the_same_here_and_there(headrace, model, ask):
    words = ["--temperature", 1.5, "--seed", 7, "--max-tokens", 16, "Hi"]
    assert ask("run", *words).stdout == headrace("run", "-m", model, *words).stdout


def test_a_conversation_is_kept_and_trimmed_to_the_servers_context(ask):
    done = ask("chat", "--max-tokens", 60, "--temperature", 0, input="\n".join(["word " * 40] * 8) + "\n")
    assert done.returncode == 0, done.stderr
    assert "the context of 512 tokens is full" in done.stderr


def test_names_keys_and_addresses_that_are_wrong_are_said(headrace, server, ask):
    assert ask("run", "-m", "tiny", "--max-tokens", 2, "Hi").returncode == 0
    unknown = ask("run", "-m", "other", "Hi")
    assert unknown.returncode != 0 and "other" in unknown.stderr and "does not exist" in unknown.stderr
    keyless = headrace("run", "--server", server, "Hi")
    assert keyless.returncode != 0 and "HEADRACE_API_KEY" in keyless.stderr
    nobody = headrace("run", "--server", "127.0.0.1:1", "Hi")
    assert nobody.returncode == 1 and "cannot reach http://127.0.0.1:1/v1/models" in nobody.stderr
    assert "headrace serve" in nobody.stderr
    malformed = headrace("run", "--server", "ftp://127.0.0.1", "Hi")
    assert malformed.returncode == 2 and "ftp://127.0.0.1" in malformed.stderr


def test_a_server_holds_answers_to_a_form_as_the_model_itself_does(headrace, model, ask):
    schema = json.dumps({"type": "array", "items": {"enum": [1, 22, 333]}, "minItems": 2, "maxItems": 4})
    for words in (["--json-schema", schema], ["--regex", "[a-f]{4}"], ["--grammar", 'start: ("x" | "y")~5']):
        limits = ["--temperature", 1.5, "--seed", 5, "Hi"]
        there = ask("run", *words, *limits)
        here = headrace("run", "-m", model, *words, *limits)
        assert (there.returncode, there.stdout) == (0, here.stdout), there.stderr
    wrong = ask("run", "--regex", "(", "Hi")
    assert wrong.returncode == 2 and "regular expression cannot be enforced" in wrong.stderr


def test_an_attached_file_is_part_of_the_prompt(headrace, model, ask, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("remember the milk\n")
    words = ["--max-tokens", 2, "--temperature", 0, "--stats"]
    plain = ask("run", *words, "Sum it up")
    attached = ask("run", *words, "--attach", note, "Sum it up")
    assert attached.returncode == 0, attached.stderr
    tokens = [int(re.search(r"(\d+) prompt tokens", done.stderr).group(1)) for done in (plain, attached)]
    assert tokens[1] > tokens[0] + 3
    here = headrace("run", "-m", model, *words, "--attach", note, "Sum it up")
    assert here.stdout == attached.stdout
    missing = ask("run", "--attach", tmp_path / "none.txt", "Sum it up")
    assert missing.returncode != 0 and "none.txt" in missing.stderr


class StandIn:
    """A server whose streamed answer is given byte for byte."""

    def __init__(self, body, status=200):
        class Handler(BaseHTTPRequestHandler):
            def reply(self, code, data):
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.reply(200, json.dumps({"object": "list", "data": [{"id": "stand-in"}]}).encode())

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(404, b"{}") if self.path == "/tokenize" else self.reply(status, body.encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_port}"


def chunk(content=None, reason=None):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": reason}]}) + "\n\n"


@pytest.mark.parametrize("body, status, output, words", [
    (chunk("Hel") + ": comment\n\n" + chunk("lo", "stop") + "data: [DONE]\n\n", 200, "Hello\n", None),
    (chunk("Hel") + "data: [DONE]\n\n", 200, "Hel", "without a reason"),
    (chunk("Hel"), 200, "Hel", "without a reason"),
    (chunk("Hel") + 'data: {"error": {"message": "out of luck"}}\n\n', 200, "Hel", "out of luck"),
    ('{"error": {"message": "too many requests"}}', 429, "", "too many requests"),
    ("<html>", 502, "", "status 502"),
    ("data: [1, 2\n\ndata: 7\n\n" + chunk("x", "length"), 200, "x\n", "cut after"),
])
def test_answers_of_other_servers(headrace, body, status, output, words):
    done = headrace("run", "--server", StandIn(body, status).address, "Hi")
    assert done.stdout.startswith(output), (done.stdout, done.stderr)
    assert words is None or words in done.stderr, done.stderr
    assert (done.returncode == 0) == (output.endswith("\n")), done.stderr


def blocks(pid, number):
    """Whether the first thread of a process has the signal blocked."""
    words = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return bool(int(words["SigBlk"], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_that_still_loads_its_model(headrace, tmp_path, number):
    """It was heard once the model was loaded, after minutes for a large one, however often it came."""
    large = tmp_path / "large.gguf"
    assert headrace("bench", "synth", "--shape", "smollm2-360m", "--format", "q8_0", "--out", large).returncode == 0
    with open(tmp_path / "log", "w+") as log:
        process = subprocess.Popen([kBinary, "serve", large, "--port", "0", "--threads", "1"],
                                   env=environment(), stdout=log, stderr=log)
        while not blocks(process.pid, number):
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == -number
        assert "listening" not in (tmp_path / "log").read_text()
