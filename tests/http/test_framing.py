"""Requests that two readers could cut in two ways, and what frames a body: refused, and the connection with it."""

import socket
import time

import pytest

from canary import unharmed

kHidden = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
kChunks = b"4\r\n{}  \r\n0\r\n\r\n"


def post(*headers, version=b"1.1", body=b"", host=b"Host: localhost\r\n"):
    lines = b"".join(line + b"\r\n" for line in headers)
    return b"POST /tokenize HTTP/" + version + b"\r\n" + host + lines + b"\r\n" + body


def coded(value):
    return post(b"Transfer-Encoding: " + value, body=kChunks)


def get(head):
    return b"GET /health HTTP/1.1\r\n" + head + b"\r\n"


kRefused = [
    ("unknown coding", coded(b"xchunked"), {400, 501}),
    ("identity", coded(b"identity"), {400, 501}),
    ("gzip", coded(b"gzip"), {400, 501}),
    ("quoted", coded(b'"chunked"'), {400, 501}),
    ("chunked then identity", coded(b"chunked, identity"), {400, 501}),
    ("chunked then gzip", coded(b"chunked, gzip"), {400, 501}),
    ("gzip then chunked", coded(b"gzip, chunked"), {400, 501}),
    ("chunked twice", coded(b"chunked, chunked"), {400, 501}),
    ("chunked with a parameter", coded(b"chunked;a=b"), {400, 501}),
    ("chunked and a comma", coded(b"chunked,"), {400, 501}),
    ("no coding", coded(b""), {400, 501}),
    ("vertical tab", coded(b"\x0bchunked"), {400}),
    ("two fields", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=kChunks), {400, 501}),
    ("two different fields", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x", body=kChunks), {400, 501}),
    ("coding and length", post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=kChunks), {400}),
    ("length and coding", post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=kChunks), {400}),
    ("unknown coding and length", post(b"Content-Length: 2", b"Transfer-Encoding: x", body=b"{}"), {400}),
    ("coding in 1.0", post(b"Transfer-Encoding: chunked", version=b"1.0", body=kChunks), {400}),
    ("two lengths", post(b"Content-Length: 2", b"Content-Length: 3", body=b"{} "), {400}),
    ("two equal lengths", post(b"Content-Length: 2", b"Content-Length: 2", body=b"{}"), {400}),
    ("a list of lengths", post(b"Content-Length: 2, 2", body=b"{}"), {400}),
    ("a signed length", post(b"Content-Length: +2", body=b"{}"), {400}),
    ("a hexadecimal length", post(b"Content-Length: 0x2", body=b"{}"), {400}),
    ("no length", post(b"Content-Length:", body=b"{}"), {400}),
    ("folded", post(b"Content-Length: 2", b" 0", body=b"{}"), {400}),
    ("folded coding", post(b"Transfer-Encoding:", b"\tchunked", body=kChunks), {400}),
    ("space before the colon", post(b"Content-Length : 2", body=b"{}"), {400}),
    ("tab before the colon", post(b"Transfer-Encoding\t: chunked", body=kChunks), {400}),
    ("space before the first field", post(b"Content-Length: 2", body=b"{}", host=b" Host: localhost\r\n"), {400}),
    ("no colon", get(b"Host: localhost\r\nsecond\r\n"), {400}),
    ("no name", get(b"Host: localhost\r\n: a\r\n"), {400}),
    ("bare line feed", b"GET /health HTTP/1.1\nHost: localhost\n\n", {400}),
    ("bare line feed in the head", get(b"Host: localhost\r\nA: b\nContent-Length: 5\r\n"), {400}),
    ("bare carriage return", get(b"Host: localhost\r\nA: b\rContent-Length: 5\r\n"), {400}),
    ("zero byte", get(b"Host: localhost\r\nA: b\0c\r\n"), {400}),
    ("no host", get(b""), {400}),
    ("two hosts", get(b"Host: localhost\r\nHost: localhost\r\n"), {400}),
    ("host with a path", get(b"Host: localhost/a\r\n"), {400}),
    ("host with a user", get(b"Host: a@localhost\r\n"), {400}),
    ("host with two ports", get(b"Host: localhost:1:2\r\n"), {400}),
    ("host with a space", get(b"Host: local host\r\n"), {400}),
    ("host list", get(b"Host: localhost, localhost\r\n"), {400}),
    ("host with open bracket", get(b"Host: [::1\r\n"), {400}),
    ("empty host", get(b"Host:\r\n"), {400}),
    ("version 2", b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", {505}),
    ("no version", b"GET /health\r\n\r\n", {400}),
    ("two spaces", b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
    ("tab in the line", b"GET\t/health\tHTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
    ("authority form", b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
    ("a fragment", b"GET /health#a HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
    ("another scheme", b"GET ftp://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
    ("compressed body", post(b"Content-Encoding: gzip", b"Content-Length: 2", body=b"{}"), {415}),
    ("unknown expectation", post(b"Expect: 200-ok", b"Content-Length: 2", body=b"{}"), {417}),
    ("negative chunk", post(b"Transfer-Encoding: chunked", body=b"-2\r\n{}\r\n0\r\n\r\n"), {400}),
    ("prefixed chunk", post(b"Transfer-Encoding: chunked", body=b"0x2\r\n{}\r\n0\r\n\r\n"), {400}),
    ("huge chunk", post(b"Transfer-Encoding: chunked", body=b"fffffffffffffffff\r\n{}\r\n"), {400}),
    ("long chunk", post(b"Transfer-Encoding: chunked", body=b"fffffffffffffff0\r\n{}\r\n"), {413}),
    ("chunk longer than it says", post(b"Transfer-Encoding: chunked", body=b"1\r\n{}\r\n0\r\n\r\n"), {400}),
    ("chunk ended by a line feed", post(b"Transfer-Encoding: chunked", body=b"2\n{}\n0\n\n"), {400}),
    ("chunk size and a word", post(b"Transfer-Encoding: chunked", body=b"2 x\r\n{}\r\n0\r\n\r\n"), {400}),
    ("folded trailer", post(b"Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\nA: b\r\n c\r\n\r\n"), {400}),
]


def talk(server, data, seconds=60):
    """All that the server says until it closes; whether it closed."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(seconds)
        answer = b""
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError:
            return answer, False
    return answer, True


@pytest.mark.parametrize("data, statuses", [case[1:] for case in kRefused], ids=[case[0] for case in kRefused])
def test_what_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_answered(server, data, statuses):
    answer, closed = talk(server, data + kHidden)
    assert closed and answer.count(b"x-request-id: ") == 1, answer
    assert int(answer[9:12]) in statuses, answer
    assert b"Connection: close" in answer and b'"message"' in answer


@pytest.mark.parametrize("data", [
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
    b"GET http://localhost/health HTTP/1.1\r\nHost: ignored.example\r\n",
    b"GET HTTP://127.0.0.1:8080/health?a=b HTTP/1.1\r\nHost: a\r\n",
    b"\r\nGET /health HTTP/1.1\r\nHost: [::1]:80\r\n",
    b"GET /health HTTP/1.0\r\n",
    b"GET /health HTTP/1.1\r\nhost:\t127.0.0.1 \r\nA:\r\nB_c: \xc3\xa9\r\n",
])
def test_what_the_standard_allows_is_taken(server, data):
    answer, closed = talk(server, data + b"Connection: close\r\n\r\n")
    assert closed and answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_chunks_with_extensions_and_trailers_are_taken(server):
    body = b'6;a="b"\r\n{"prom\r\n000008 ; c\r\npt":"a"}\r\n0\r\nTrailer: x\r\n\r\n'
    answer, closed = talk(server, post(b"Transfer-Encoding: Chunked", b"Connection: close", body=body))
    assert closed and answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.count(b"x-request-id: ") == 1


def flood(server, piece, head=post(b"Transfer-Encoding: chunked")):
    """Sends the head and then the piece again and again. How many bytes the server took, and its answer."""
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(60)
        answer = b""
        try:
            connection.sendall(head)
            connection.setblocking(False)
            end = time.monotonic() + 60
            while time.monotonic() < end and sent < 300_000_000:
                try:
                    answer += connection.recv(65536)
                except BlockingIOError:
                    pass
                if answer:
                    break
                try:
                    sent += connection.send(piece)
                except BlockingIOError:
                    time.sleep(0.001)
        except (ConnectionResetError, BrokenPipeError):
            pass
    return sent, answer


@pytest.mark.parametrize("piece, head, status", [
    (b"1;" + b"x" * 65536, post(b"Transfer-Encoding: chunked"), b"413"),
    (b"1;" + b"x" * 200 + b"\r\na\r\n", post(b"Transfer-Encoding: chunked"), b"413"),
    (b"1\r\na\r\n" * 10_000, post(b"Transfer-Encoding: chunked"), b"413"),
    (b"0" * 65536, post(b"Transfer-Encoding: chunked"), b"413"),
    (b"0000000001\r\na\r\n" * 1000, post(b"Transfer-Encoding: chunked"), b"413"),
    (b"a: b\r\n" * 1000, post(b"Transfer-Encoding: chunked", body=b"0\r\n"), b"431"),
    (b"a" * 65536, post(b"Transfer-Encoding: chunked", body=b"0\r\n"), b"431"),
    (b"a" * 65536, b"GET /", b"414"),
    (b"a" * 65536, b"", b"400"),
    (b"a: b\r\n" * 1000, b"GET / HTTP/1.1\r\n", b"431"),
], ids=["one extension", "extensions", "bytes", "zeros", "padded sizes", "trailers", "one trailer", "target", "method",
        "headers"])
def test_a_flood_of_framing_ends_early(server, piece, head, status):
    with unharmed(server):
        sent, answer = flood(server, piece, head)
    assert answer[9:12] == status, answer
    # Beyond the limits: what the sockets of both sides hold.
    assert sent < 32_000_000
