"""Priorities, queue times and deadlines on the wire: every dialect's fields and every dialect's answer."""

import concurrent.futures
import json
import socket
import time

import httpx
import pytest

import tiny_model

kContext = 65536
kMessages = [{"role": "user", "content": "a"}]
# path, body, the name of the length, where the message of an error stands
kDialects = {
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 2000, "ignore_eos": True}),
    "chat": ("/v1/chat/completions", {"messages": kMessages, "max_tokens": 2000, "ignore_eos": True}),
    "responses": ("/v1/responses", {"input": "a", "max_output_tokens": 2000, "ignore_eos": True}),
    "anthropic": ("/v1/messages", {"messages": kMessages, "max_tokens": 2000}),
    "ollama": ("/api/chat", {"messages": kMessages, "stream": False, "options": {"num_predict": 2000}}),
    "llamacpp": ("/completion", {"prompt": "a", "n_predict": 2000, "ignore_eos": True}),
}


def message_of(body):
    error = body["error"]
    return error if isinstance(error, str) else error["message"]


@pytest.fixture(scope="module")
def busy(serve, tmp_path_factory):
    """A server with one place, whose model can answer for seconds."""
    model = tiny_model.write(tmp_path_factory.mktemp("long") / "tiny", context=kContext)
    with serve("--context", str(kContext), "--max-sequences", "1", "--max-prompt-tokens", "2000", "--speculation", "off",
               model=model) as server:
        yield server


def post(server, name, **fields):
    path, body = kDialects[name]
    return httpx.post(f"http://127.0.0.1:{server.port}{path}", json={**body, **fields}, timeout=120)


class Occupied:
    """The one place is taken for as long as this lasts."""

    def __init__(self, server):
        body = json.dumps({"prompt": "b", "max_tokens": kContext - 200, "ignore_eos": True}).encode()
        self.server = server
        self.connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                                % (len(body), body))

    def __enter__(self):
        while self.server.metric("vllm:num_requests_running") == 0:
            time.sleep(0.002)

    def __exit__(self, *error):
        self.connection.close()
        self.server.wait_until_idle()


@pytest.mark.parametrize("name", kDialects)
def test_who_waits_longer_than_it_allows_is_told_when_to_come_again(busy, name):
    with Occupied(busy):
        answer = post(busy, name, max_queue_ms=1)
    assert answer.status_code == 503, answer.text
    assert answer.headers["retry-after"] == "1"
    assert "the request has waited for 1 ms" in message_of(answer.json())


@pytest.mark.parametrize("name", kDialects)
def test_an_answer_that_misses_its_deadline_is_an_error(busy, name):
    answer = post(busy, name, deadline_ms=3)
    if name in ("anthropic", "ollama") and answer.status_code == 200:
        pytest.skip("the model ended its answer by itself")
    assert answer.status_code == 503, answer.text
    assert "is not complete 3 ms after the request came" in message_of(answer.json())
    busy.wait_until_idle()


def test_a_stream_ends_with_the_error(busy):
    path, body = kDialects["completions"]
    lines = []
    with httpx.stream("POST", f"http://127.0.0.1:{busy.port}{path}", timeout=120,
                      json={**body, "deadline_ms": 3, "stream": True}) as answer:
        assert answer.status_code == 200
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert "deadline" in json.loads(next(line for line in lines if "error" in line))["error"]["message"]


@pytest.mark.parametrize("name", kDialects)
@pytest.mark.parametrize("field, value", [("priority", 101), ("priority", -101), ("priority", "high"),
                                          ("max_queue_ms", 0), ("deadline_ms", -1), ("deadline_ms", 86_400_001)])
def test_what_is_out_of_range_is_named(busy, name, field, value):
    answer = post(busy, name, **{field: value})
    assert answer.status_code == 400, answer.text
    assert field in message_of(answer.json())


@pytest.mark.parametrize("name", kDialects)
def test_all_dialects_take_a_priority(busy, name):
    for priority in (-100, 0, 100):
        assert post(busy, name, priority=priority, max_queue_ms=60_000, deadline_ms=60_000).status_code == 200


def test_prompts_beyond_the_room_are_told_when_to_come_again(busy):
    """Twelve prompts of 450 tokens at once, where the queue takes 2,000 of them."""
    url = f"http://127.0.0.1:{busy.port}/v1/completions"
    body = {"prompt": "x" * 450, "max_tokens": 50, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = [answer.result() for answer in [pool.submit(httpx.post, url, json=body, timeout=300)
                                                  for _ in range(12)]]
    assert {answer.status_code for answer in answers} <= {200, 429}
    assert any(answer.status_code == 200 for answer in answers)
    for answer in answers:
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "1"
            assert "tokens of prompts" in message_of(answer.json())
    busy.wait_until_idle()
    assert httpx.post(url, json=body, timeout=300).status_code == 200
