"""Every documented limit at its border: what is below and at it is taken, what is above has its own status."""

import json
import socket

import httpx
import pytest

from canary import unharmed

kHead = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
kBody = b'{"prompt":"a","max_tokens":1}'


def send(server, data):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        try:
            connection.sendall(data)
            return int(connection.recv(4096)[9:12])
        except (ConnectionResetError, BrokenPipeError):
            return int(connection.recv(4096)[9:12])


def request(head=b"", target=b"/v1/completions", body=kBody):
    return (b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s"
            % (target, head, len(body), body))


def target_of(size):
    return request(target=b"/v1/completions?" + b"q" * (size - 16))


def head_of(size):
    empty = len(request()) - len(kBody) + len(b"A: \r\n")
    return request(head=b"A: " + b"x" * (size - empty) + b"\r\n")


def fields_of(count):
    return request(head=b"".join(b"A%d: b\r\n" % i for i in range(count - 3)))  # Host, Content-Length, Connection


def body_of(size):
    return request(body=kBody[:-1] + b" " * (size - len(kBody)) + b"}")


def json_body(**fields):
    return request(body=json.dumps({"prompt": "a", "max_tokens": 1, **fields}).encode())


def nested(depth):  # levels with the body's own object
    value = 0
    for _ in range(depth - 1):
        value = [value]
    return json_body(metadata=value)


def text_of(length):
    return json_body(stop="x" * length)


# name, how to make a request of a size, the limit, the status above it
kLimits = [
    ("request target", target_of, 8192, 414),
    ("head", head_of, 32 * 1024, 431),
    ("number of headers", fields_of, 100, 431),
    ("body", body_of, 1024 * 1024, 413),
    ("JSON depth", nested, 64, 400),
    ("keys of an object", lambda n: json_body(metadata={str(i): 0 for i in range(n)}), 10_000, 400),
    ("number of stops", lambda n: json_body(stop=[f"{i:05}" for i in range(n)]), 32, 400),
    ("length of a stop", text_of, 256, 400),
    ("stop ids", lambda n: json_body(stop_token_ids=[5] * n), 128, 400),
    ("biases", lambda n: json_body(logit_bias={str(i % 200 + 2): 0 for i in range(min(n, 200))}), 1024, None),
    ("n", lambda n: json_body(n=n), 16, 400),
    ("alternatives", lambda n: json_body(logprobs=n), 20, 400),
    ("prompt in tokens", lambda n: json_body(prompt=[65] * n), 255, 400),
]


@pytest.fixture(scope="module")
def limited(serve):
    with serve("--context", "256", "--max-body", "1M") as server:
        yield server


@pytest.mark.parametrize("make, limit, status", [row[1:] for row in kLimits], ids=[row[0] for row in kLimits])
def test_a_limit_is_where_it_is_said_to_be(limited, make, limit, status):
    with unharmed(limited):
        assert send(limited, make(limit - 1)) == 200
        assert send(limited, make(limit)) == 200
        if status:
            assert send(limited, make(limit + 1)) == status


def test_a_full_queue_is_told_at_the_door_with_when_to_come_again(serve):
    with serve("--context", "512", "--max-sequences", "1", "--max-waiting", "0") as server:
        body = json.dumps({"prompt": "a", "max_tokens": 400, "ignore_eos": True}).encode()
        connections = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(32)]
        for connection in connections:
            connection.sendall(request(body=body))
        answers = []
        for connection in connections:
            answer = b""
            while part := connection.recv(65536):
                answer += part
            answers.append(answer)
            connection.close()
        statuses = [int(answer[9:12]) for answer in answers]
        assert set(statuses) == {200, 429}, statuses
        refused = next(answer for answer in answers if answer[9:12] == b"429")
        assert b"\r\nRetry-After: 1\r\n" in refused and b'"error":{"message":' in refused


def test_connections_over_the_limit_are_told(serve):
    with serve("--context", "256", "--max-connections", "4") as server:
        held = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(4)]
        for connection in held:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert send(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") == 503
        for connection in held:
            connection.close()


def test_silent_streams_say_something_within_five_seconds(serve):
    """A stream that waits behind another: comments at most five seconds apart, which clients skip."""
    import time
    with serve("--context", "512", "--max-sequences", "1") as server:
        connections = []
        body = json.dumps({"prompt": "a", "max_tokens": 480, "ignore_eos": True, "stream": True, "n": 16}).encode()
        for _ in range(40):  # seconds of work for one sequence at a time
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            connection.sendall(request(body=body))
            connections.append(connection)
        last, longest, seen = time.monotonic(), 0.0, b""
        begin = last
        watched = connections[-1]
        while time.monotonic() < begin + 8 and b"[DONE]" not in seen:
            seen += watched.recv(65536)
            longest = max(longest, time.monotonic() - last)
            last = time.monotonic()
        for connection in connections:
            connection.close()
        assert longest < 6.5
