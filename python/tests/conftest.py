"""Tests of the installed package, with a tiny model of random weights, and the server beside it."""

import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

kRepository = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(kRepository / "tests" / "http"))

import headrace  # noqa: E402
import tiny_model  # noqa: E402

assert kRepository / "python" not in Path(headrace.__file__).parents, "the sources are tested, not the wheel"


class Server:
    """`headrace serve` over a model."""

    def __init__(self, model, *options):
        binary = os.environ.get("HEADRACE_BINARY", str(kRepository / "build/release/bin/headrace"))
        self.process = subprocess.Popen(
            [binary, "serve", str(model), "--port", "0", "--quiet", *options], stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)\s*$", self.process.stdout.readline()).group(1))

    def post(self, path, body):
        """(status, text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny"
    return tiny_model.write(path, context=1024, template=tiny_model.kToolTemplate)


@pytest.fixture(scope="session")
def llm(folder):
    with headrace.LLM(folder, context=512, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def real_model():
    path = Path(os.environ.get("HEADRACE_TEST_MODELS", "absent")) / "smollm2-135m.gguf"
    if not path.exists():
        pytest.skip("HEADRACE_TEST_MODELS names no folder with smollm2-135m.gguf")
    return path


@pytest.fixture(scope="session")
def recorded():
    """What transformers computed in float32 of the same file's weights (tests/data/golden)."""
    golden = Path(os.environ.get("HEADRACE_GOLDEN", kRepository / "build/golden"))
    path = golden / "real" / "smollm2-135m-q4_1.json"
    if not path.exists():
        pytest.skip("no recorded results: HEADRACE_GOLDEN names no folder of them")
    return json.loads(path.read_text()), (golden / "text.txt").read_text()
