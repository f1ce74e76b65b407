"""Bytes on the wire: bad input, clients that vanish or dawdle, signals."""

import http.client
import json
import signal
import socket
import threading
import time

import httpx
import pytest
from canary import budget

kStream = {"prompt": "abc", "max_tokens": 400, "ignore_eos": True, "stream": True}


def raw_request(server, body):
    connection = socket.create_connection(("127.0.0.1", server.port))
    data = json.dumps(body).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return connection


@pytest.mark.parametrize("body, message", [
    (b"", "the body is empty, but it must be a JSON object"),
    (b"[1]", "the body is a list, but it must be a JSON object"),
    (b'{"prompt":"a"', "the body is not valid JSON: incomplete JSON at byte 13"),
    (b'{"prompt":"a","temperature":NaN}', "the body is not valid JSON: syntax error at byte 28"),
    (b'{"prompt":"a","temperature":Infinity}', "the body is not valid JSON: syntax error at byte 28"),
    (b'{"prompt":"a"} trailing', "the body is not valid JSON: extra data at byte 15"),
    (b'{"temperature":1}', "prompt is missing, but it must be a string, a list of strings, a list of token ids or a "
                           "list of such lists"),
    (b'{"prompt":[999]}', "prompt holds 999, but token ids are whole numbers from 0 to 255"),
    (b'{"prompt":"a","logit_bias":{"999":1}}', 'logit_bias has the key "999", but its keys must be token ids from 0 '
                                               "to 255"),
    (b'{"prompt":"a","max_tokens":1e999}', None),
    (b'{"prompt":"' + b"\xff" + b'"}', None),
    (b'{"prompt":"\\ud800"}', None),
    (b"[" * 100000, None),
    (b'{"a":' * 1000 + b"1" + b"}" * 1000, None),
])
def test_bad_bodies(server, body, message):
    response = httpx.post(server.url + "/v1/completions", content=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"]
    if message is not None:
        assert error["message"] == message


def test_hostile_values_name_their_field(server):
    """Each field with each value: an answer, or a 400 that names the field. The server lives on."""
    values = [None, True, False, 0, -1, 1, 0.5, -0.0, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 1e308, "", "x", [], [1],
              ["a"], {}, {"a": 1}, [[]], "\u0000", "é" * 300]
    fields = ["model", "prompt", "max_tokens", "max_completion_tokens", "min_tokens", "temperature", "top_p", "top_k",
              "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "n", "best_of", "stop",
              "stop_token_ids", "logit_bias", "logprobs", "echo", "stream_options", "ignore_eos", "suffix",
              "skip_special_tokens", "add_special_tokens", "response_format", "include_stop_str_in_output"]
    count = 0
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for field in fields:
            for value in values:
                response = client.post("/v1/completions", json={"prompt": "abc", "max_tokens": 2, field: value})
                count += 1
                if response.status_code == 200:
                    assert response.json()["choices"], (field, value)
                    continue
                assert response.status_code in (400, 404), (field, value, response.text)
                error = response.json()["error"]
                names = {"min_tokens": ["min_tokens", "max_tokens"], "max_tokens": ["max_tokens", "min_tokens"],
                         "max_completion_tokens": ["max_tokens", "max_completion_tokens"]}.get(field, [field])
                assert any((error["param"] or "").startswith(name) for name in names), (field, value, error)
    assert count == len(fields) * len(values)


def test_random_ids_as_prompt(server):
    import random

    rng = random.Random(3)
    for _ in range(20):
        prompt = [rng.randrange(256) for _ in range(50)]
        response = httpx.post(server.url + "/v1/completions",
                              json={"prompt": prompt, "max_tokens": 5, "echo": True, "ignore_eos": True})
        assert response.status_code == 200
        response.content.decode("utf-8")


def test_clients_that_vanish(server):
    before = server.metric("headrace:disconnects_total")
    for i in range(10):
        connection = raw_request(server, kStream | {"stream": i % 2 == 0, "n": 16})
        if i % 2 == 0:
            while b"data: " not in connection.recv(4096):
                pass
        connection.close()
    server.wait_until_idle()
    # A tiny model may finish an answer before its client is seen to be gone.
    assert server.metric("headrace:disconnects_total") >= before + 1
    assert httpx.post(server.url + "/v1/completions", json={"prompt": "a"}).status_code == 200


def test_every_stream_ends_once(server):
    data = raw_request(server, kStream | {"max_tokens": 20})
    text = b""
    while not text.endswith(b"0\r\n\r\n"):
        text += data.recv(65536)
    assert text.count(b"[DONE]") == 1 and text.count(b'"finish_reason":"length"') == 1
    assert text.index(b"[DONE]") > text.index(b'"finish_reason":"length"')
    data.settimeout(0.3)
    with pytest.raises(TimeoutError):
        data.recv(1)


def test_limits(server):
    assert httpx.get(server.url + "/absent").status_code == 404
    refused = httpx.get(server.url + "/v1/completions")
    assert refused.status_code == 405 and refused.headers["allow"] == "POST"
    assert httpx.options(server.url + "/v1/completions").status_code == 204
    assert httpx.head(server.url + "/health").status_code == 200
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/completions", body=b"x" * (32 * 1024 * 1024 + 1))
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["error"]["message"] == "the body is longer than 33554432 bytes"
    assert httpx.get(server.url + "/health", headers={"x": "y" * 40000}).status_code == 431


def test_pipelined_requests(server):
    connection = socket.create_connection(("127.0.0.1", server.port))
    body = b'{"prompt":"a","max_tokens":1,"temperature":0}'
    connection.sendall(10 * (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body))
    text = b""
    while text.count(b'"usage"') < 10:
        part = connection.recv(65536)
        assert part
        text += part
    assert text.count(b"HTTP/1.1 200 OK") == 10


def test_tokenizer_endpoints(server):
    client = httpx.Client(base_url=server.url, timeout=60)
    ids = client.post("/tokenize", json={"prompt": "héllo", "add_special_tokens": False}).json()["tokens"]
    assert ids == list("héllo".encode())
    assert client.post("/detokenize", json={"tokens": ids}).json() == {"prompt": "héllo"}
    info = client.get("/tokenizer_info").json()
    assert info["bos_token"] == "<s>" and info["eos_token"] == "</s>" and "add_generation_prompt" in info["chat_template"]
    chat = client.post("/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert chat["tokens"] == [0, *b"<user>Hi\n<assistant>"] and chat["max_model_len"] == 512


def test_status_page_and_probes(server):
    client = httpx.Client(base_url=server.url, timeout=60)
    status = client.get("/api/headrace/status").json()
    assert status["model"]["family"] == "llama" and status["engine"]["numerics_id"]
    assert status["steps"], "the engine has made steps"
    assert client.get("/").status_code == 200
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/ready").json() == {"ready": True}
    assert client.get("/version").json()["version"]


def test_health_answers_while_large_prompts_are_read(server):
    prompt = "x" * 8_000_000
    done = threading.Event()

    def push():
        while not done.is_set():
            response = httpx.post(server.url + "/v1/completions", json={"prompt": prompt}, timeout=60)
            assert response.status_code == 400

    threads = [threading.Thread(target=push) for _ in range(2)]
    for thread in threads:
        thread.start()
    slowest, most_seconds = 0.0, budget(2)
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for _ in range(50):
            begin = time.monotonic()
            assert client.get("/health").status_code == 200
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.01)
    done.set()
    for thread in threads:
        thread.join()
    assert slowest < most_seconds


def test_sigterm_drains(serve):
    with serve("--context", "512", "--drain-seconds", "30") as server:
        connection = raw_request(server, kStream | {"max_tokens": 300})
        while b"data: " not in connection.recv(4096):
            pass
        server.process.send_signal(signal.SIGTERM)
        text = b""
        while part := connection.recv(65536):
            text += part
        assert b"data: [DONE]" in text and text.endswith(b"0\r\n\r\n")
        assert server.process.wait(timeout=60) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))


def test_sigterm_with_a_short_limit_ends_with_an_error(serve):
    with serve("--context", "512", "--drain-seconds", "0") as server:
        connections = [raw_request(server, kStream) for _ in range(4)]
        for connection in connections:
            while b"data: " not in connection.recv(4096):
                pass
        server.process.send_signal(signal.SIGTERM)
        for connection in connections:
            text = b""
            while part := connection.recv(65536):
                text += part
            ended = b"data: [DONE]" in text
            failed = b"the answer was ended early because the server is shutting down" in text
            assert ended != failed
        assert server.process.wait(timeout=60) == 0
