"""A real `headrace serve` process for the tests of this folder.

HEADRACE_BINARY names the program, HEADRACE_TEST_MODEL a model to use instead of the tiny one.
"""

import contextlib
import functools
import os
import queue
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import openai
import pytest

import tiny_model

kRepository = Path(__file__).resolve().parents[2]
kBinary = os.environ.get("HEADRACE_BINARY", str(kRepository / "build/release/bin/headrace"))

# By itself httpx gives up after five seconds, in which a busy machine may not come round.
for name in ("delete", "get", "head", "options", "post", "put", "request", "stream"):
    setattr(httpx, name, functools.partial(getattr(httpx, name), timeout=60))


class Server:
    def __init__(self, model, *options, command=("serve", "--quiet"), **popen):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        self.process = subprocess.Popen(
            [kBinary, *command, str(model), "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **popen)
        self.errors = []
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in self.process.stdout], daemon=True).start()
        threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True).start()
        try:
            line = lines.get(timeout=120)
        except queue.Empty:
            self.process.kill()
            raise AssertionError("no address after 120 s:\n" + "".join(self.errors)) from None
        self.url = re.search(r"https?://\S+", line).group()
        self.port = int(self.url.rsplit(":", 1)[1])

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", **{"max_retries": 0, "timeout": 60, **options})

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def metric(self, name):
        text = httpx.get(self.url + "/metrics").text
        values = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.M)
        assert values, f"/metrics has no {name}"
        return sum(map(float, values))

    def wait_until_idle(self, seconds=60):
        end = time.monotonic() + seconds
        while self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") > 0:
            assert time.monotonic() < end, "requests are still running"
            time.sleep(0.02)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    given = os.environ.get("HEADRACE_TEST_MODEL")
    return Path(given) if given else tiny_model.write(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def serve(model):
    usual = model

    @contextlib.contextmanager
    def start(*options, model=usual):
        server = Server(model, *options)
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)

    return start


@pytest.fixture(scope="session")
def server(serve):
    with serve("--context", "512", "--alias", "gpt-4o-mini,second") as running:
        yield running
        assert running.process.poll() is None, "the server died:\n" + "".join(running.errors)
        assert running.stop() == 0


@pytest.fixture(scope="session")
def filling(serve, tmp_path_factory):
    """A model with the marks of fill-in-the-middle, one token a step."""
    model = tiny_model.write(tmp_path_factory.mktemp("filling") / "tiny", fills=True)
    with serve("--context", "512", "--speculation", "off", model=model) as running:
        yield running
        assert running.process.poll() is None, "the server died:\n" + "".join(running.errors)


@pytest.fixture
def client(server):
    return server.client()
