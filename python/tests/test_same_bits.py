"""The same request here and over HTTP: the same answer, and every float the same."""

import json
import struct

import headrace
import pytest
from conftest import Server

kMessages = [{"role": "user", "content": "Why is the sky blue?"}]
kCases = [
    {"prompt": "The sky is", "temperature": 0, "max_tokens": 24, "logprobs": 5},
    {"prompt": "The sky is", "temperature": 0.9, "seed": 7, "max_tokens": 24, "logprobs": 5, "n": 3},
    {"prompt": [100, 101, 102, 103], "temperature": 1.2, "seed": 1, "top_p": 0.9, "max_tokens": 16},
    {"prompt": "The sky is blue", "max_tokens": 0, "echo": True, "logprobs": 5},
    {"messages": kMessages, "temperature": 0, "max_tokens": 24, "logprobs": True, "top_logprobs": 5},
    {"messages": kMessages, "seed": 3, "max_tokens": 24, "logprobs": True, "top_logprobs": 2},
    {"prompt": "x", "seed": 3, "max_tokens": 30, "structured_outputs": {"regex": "[a-z]{3,9}"}, "logprobs": 1},
]


def content(shown):
    """All but the name and the time of an answer, and what was in whose cache."""
    usage = dict(shown["usage"], prompt_tokens_details=None)
    return [shown["choices"], usage, shown["system_fingerprint"]]


def compare(llm, server, cases):
    for body in cases:
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        status, text = server.post(path, body)
        assert status == 200, text
        here, there = llm.request(path, body), json.loads(text)
        assert content(here) == content(there), body  # numbers are written so that they read back to the same float
        assert here["choices"][0]["finish_reason"]


@pytest.fixture(scope="module")
def server(folder):
    running = Server(folder, "--context", "512", "--threads", "1")
    yield running
    running.stop()


def test_tiny_model(llm, server):
    compare(llm, server, kCases)


def test_vectors(llm, server):
    status, text = server.post("/v1/embeddings", {"input": "The sky is", "encoding_format": "float"})
    assert status == 200, text
    there = json.loads(text)["data"][0]["embedding"]
    assert struct.pack("64f", *llm.embed("The sky is")) == struct.pack("64f", *there)


def test_in_a_crowd_and_with_other_threads(folder, server):
    """Alone over there with one thread, here among others with two."""
    body = {"prompt": "The sky is", "temperature": 0, "max_tokens": 24, "logprobs": 5}
    there = json.loads(server.post("/v1/completions", body)[1])
    with headrace.LLM(folder, context=512, threads=2) as llm:
        crowd = [llm.stream(f"neighbour {i}", max_tokens=60, ignore_eos=True) for i in range(6)]
        here = llm.request("/v1/completions", body)
        del crowd
    assert content(here)[0] == content(there)[0]


def test_errors(llm, server):
    for body in ({"prompt": "x", "temperature": -1}, {"prompt": "x", "dry_multiplier": 1}, {"prompt": "x" * 600}):
        status, text = server.post("/v1/completions", body)
        with pytest.raises(headrace.Error) as found:
            llm.request("/v1/completions", body)
        assert status == 400 and str(found.value) == json.loads(text)["error"]["message"]
        assert found.value.param == json.loads(text)["error"]["param"]


def test_real_model(real_model):
    server = Server(real_model, "--context", "1024")
    try:
        with headrace.LLM(real_model, context=1024) as llm:
            compare(llm, server, kCases)
    finally:
        server.stop()
