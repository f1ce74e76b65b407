"""Texts and conversations of any size: an answer or an error of that request alone."""

import resource

import httpx
import pytest

from canary import unharmed

kMiB = 1 << 20


def chat(server, **fields):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, **fields}
    return httpx.post(server.url + "/v1/chat/completions", json=body, timeout=60)


@pytest.mark.parametrize("fields", [
    {"chat_template_kwargs": {"x": [0] * 2_000_000}},
    {"documents": [{"text": "a" * (4 * kMiB)}]},
    {"messages": [{"role": "assistant", "content": "", "reasoning_content": "a" * (4 * kMiB)}]},
    {"messages": [{"role": "user", "content": "a" * (8 * kMiB)}]},
    {"messages": [{"role": "user", "content": "a few words"}] * 300_000},
], ids=["variables", "documents", "reasoning", "content", "messages"])
def test_a_large_conversation_does_not_harm_the_next(server, fields):
    assert chat(server).status_code == 200
    with unharmed(server, grown_mib=64):
        assert chat(server, **fields).status_code in (200, 400)
        assert chat(server).status_code == 200


def test_a_failed_allocation_is_an_error_of_its_request(serve):
    with serve("--context", "512") as server:
        assert chat(server).status_code == 200
        limit = 2 << 30
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
        for _ in range(3):
            answer = httpx.post(server.url + "/tokenize", json={"prompt": "7" * (4 * kMiB)}, timeout=60)
            assert answer.status_code in (200, 400, 429, 503), answer.text
            assert server.process.poll() is None
            assert chat(server).status_code == 200
