"""What one client may hold, and for how long: memory, workers, slow and half-open connections, the way out."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from canary import Usage, budget, unharmed
from conftest import kBinary

kMiB = 1024 * 1024


def head(length, path=b"/v1/completions", *more):
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n" % (path, length, lines)


def connect(server, receive_buffer=None):
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", server.port))
    connection.settimeout(60)
    return connection


def read_all(connection):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            data += part
    return data


def test_unfinished_bodies_share_a_budget_and_small_requests_get_in(serve):
    with serve("--context", "256", "--request-memory", "64M") as server, unharmed(server):
        before = Usage(server.process.pid).resident_mib
        connections = [connect(server) for _ in range(24)]
        refused = 0
        for connection in connections:  # 24 x 6 MiB, of which no more than 32 MiB may be held
            connection.setblocking(False)
        waiting = {connection: head(8 * kMiB) + b" " * (6 * kMiB) for connection in connections}
        moved, patience = time.monotonic(), budget(2)
        while waiting and time.monotonic() < moved + patience:  # until the server takes no more
            for connection, data in list(waiting.items()):
                try:
                    sent = connection.send(data[:256 * 1024])
                    moved = time.monotonic()
                    waiting[connection] = data[sent:]
                    if not waiting[connection]:
                        del waiting[connection]
                except BlockingIOError:
                    continue
                except (BrokenPipeError, ConnectionResetError):
                    del waiting[connection]
        assert Usage(server.process.pid).resident_mib < before + 80
        begin = time.monotonic()
        assert httpx.post(server.url + "/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
        assert time.monotonic() - begin < budget(5)
        for connection in connections:
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                answer = connection.recv(65536)
                refused += answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in answer
            connection.close()
        assert refused >= 15 and server.metric("headrace:refused_memory_total") >= 15


def test_a_body_longer_than_could_ever_fit_is_too_long(serve):
    with serve("--context", "256", "--request-memory", "4M") as server:
        response = httpx.post(server.url + "/v1/completions", content=b" " * (3 * kMiB))
        assert response.status_code == 413 and response.json()["error"]["message"] == "the body is longer than 2097152 bytes"


def test_small_requests_do_not_wait_behind_large_ones(server):
    large = json.dumps({"prompt": "x y " * 300_000}).encode()
    done = threading.Event()

    def push():
        while not done.is_set():
            httpx.post(server.url + "/tokenize", content=large, timeout=60)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    slowest, most_seconds = 0.0, budget(3)
    for _ in range(10):
        begin = time.monotonic()
        assert httpx.post(server.url + "/v1/completions", json={"prompt": "a", "max_tokens": 3}).status_code == 200
        slowest = max(slowest, time.monotonic() - begin)
    done.set()
    for thread in threads:
        thread.join()
    assert slowest < most_seconds


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_sends_no_more_gets_its_answer(server, stream):
    body = json.dumps({"prompt": "abc", "max_tokens": 200, "ignore_eos": True, "stream": stream}).encode()
    connection = connect(server)
    connection.sendall(2 * (head(len(body)) + body))  # pipelined
    connection.shutdown(socket.SHUT_WR)
    answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200 OK") == 2 and answer.count(b'"finish_reason":"length"') == 2


def test_a_slow_reader_gets_the_whole_of_a_large_answer(server):
    """A megabyte of token strings at a rate at which the answer takes seconds."""
    body = json.dumps({"prompt": "a" * 300_000, "return_token_strs": True, "add_special_tokens": False}).encode()
    connection = connect(server, receive_buffer=16 * 1024)
    connection.sendall(head(len(body), b"/tokenize", b"Connection: close") + body)
    answer = b""
    while part := connection.recv(16 * 1024):
        answer += part
        time.sleep(0.02)
    length = int(re.search(rb"Content-Length: (\d+)", answer).group(1))
    assert length > kMiB and len(answer.split(b"\r\n\r\n", 1)[1]) == length
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["count"] == 300_000


def start(model, *options, **given):
    return subprocess.run([kBinary, "serve", str(model), "--quiet", *options], capture_output=True, text=True, timeout=60,
                          **given)


def test_a_server_that_cannot_listen_says_why(server, model):
    for options, message in [
        (["--port", str(server.port)], f"cannot listen on 127.0.0.1 port {server.port}: Address already in use"),
        (["--host", "nohost", "--port", "0", "--insecure-no-keys"], "host is 'nohost', but it must be an IP address or localhost"),
        (["--host", "1.2.3.4", "--port", "0", "--insecure-no-keys"], "cannot listen on 1.2.3.4 port 0: "),
    ]:
        done = start(model, *options)
        assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done


def test_where_it_cannot_listen_no_model_is_loaded_first(server, tmp_path):
    """A port in use was told once the model was loaded, after minutes for a large one."""
    file = tmp_path / "file"
    file.write_text("no certificate")
    for options, message in [
        (["--port", str(server.port)], "Address already in use"),
        (["--port", "0", "--admin-socket", str(file)], "a file is there"),
        (["--port", "0", "--tls-cert", str(file), "--tls-key", str(file)], "cannot use the TLS certificate"),
    ]:
        done = start("no-such-model", *options)
        assert done.returncode == 1 and message in done.stderr, done


def test_shutdown_does_not_wait_for_large_bodies(serve):
    with serve("--context", "256", "--drain-seconds", "1") as server:
        large = json.dumps({"prompt": "x y " * 3_000_000}).encode()
        connections = [connect(server) for _ in range(6)]
        threads = [threading.Thread(target=lambda each=each: each.sendall(head(len(large), b"/tokenize") + large))
                   for each in connections]
        for thread in threads:
            thread.daemon = True
            thread.start()
        time.sleep(0.5)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=60)
        assert time.monotonic() - begin < 1 + budget(8)
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_closes_ends_the_server_unless_told_to_ignore_it(model, ignored):
    process = subprocess.Popen(
        [kBinary, "serve", str(model), "--port", "0", "--quiet", "--context", "256"], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL))
    try:
        url = re.search(r"http://\S+", process.stdout.readline()).group()
        process.send_signal(signal.SIGHUP)
        if ignored:
            time.sleep(0.3)
            assert httpx.get(url + "/ready").status_code == 200
        else:
            assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


def wait_for_line(server, pattern):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [line for line in server.errors if re.search(pattern, line)]
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no line has {pattern}:\n" + "".join(server.errors))


def test_each_request_has_a_line_in_the_log(serve):
    with serve("--context", "256", "--api-key", "secret-key") as server:
        key = {"Authorization": "Bearer secret-key"}
        httpx.post(server.url + "/v1/completions?q=secret-query", headers=key | {"x-request-id": "mine-1"},
                   json={"prompt": "secret-prompt", "max_tokens": 2})
        httpx.get(server.url + "/v1/models%0a2026-01-01T00:00:00 info faked%22", headers=key | {"x-request-id": "a\" b"})
        with connect(server) as connection:
            connection.sendall(b"GARBAGE\r\n\r\n")
            connection.recv(1000)
        with connect(server) as connection:
            connection.sendall(head(1000, b"/v1/completions", b"Authorization: Bearer secret-key") + b"{")
        line = wait_for_line(server, "id=mine-1")
        assert "request POST /v1/completions 200 whole" in line and "total_ms=" in line and "sent_bytes=" in line
        assert "404" in wait_for_line(server, r"/v1/models\\x0a2026-01-01T00:00:00\\x20info\\x20faked\\x22")
        wait_for_line(server, "request - - 400 whole")
        wait_for_line(server, "request POST /v1/completions 0 client_left")
        assert not [each for each in server.errors if "secret" in each or each.startswith("2026-01-01")]


def test_the_log_can_be_json(serve):
    with serve("--context", "256", "--log-format", "json") as server:
        httpx.post(server.url + "/v1/completions", json={"prompt": "a", "max_tokens": 2}, headers={"x-request-id": "i-1"})
        httpx.get(server.url + "/absent%22%0a%ff")
        wait_for_line(server, "absent")
        lines = [json.loads(line) for line in server.errors]
        assert all({"time", "level"} <= line.keys() for line in lines)
        record = next(line for line in lines if line.get("request_id") == "i-1")
        assert record["event"] == "request" and record["status"] == 200 and record["route"] == "/v1/completions"
        assert next(line for line in lines if line.get("status") == 404)["path"] == '/absent"\n\ufffd'


def test_progress_is_a_part_of_a_json_log(model, tmp_path):
    """Lines of progress stood between the objects."""
    with open(tmp_path / "log", "w+") as log:
        process = subprocess.Popen([kBinary, "serve", str(model), "--port", "0", "--context", "256", "--log-format", "json"],
                                   stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert "listening on" in process.stdout.readline()
        finally:
            process.terminate()
            process.wait(timeout=60)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert any("loading" in line["message"] and "100 %" in line["message"] for line in lines)


def test_a_log_that_nobody_reads_stops_nothing(model):
    reading, writing = os.pipe()
    process = subprocess.Popen([kBinary, "serve", str(model), "--port", "0", "--quiet", "--context", "256"],
                               stdout=subprocess.PIPE, stderr=writing, text=True)
    try:
        url = re.search(r"http://\S+", process.stdout.readline()).group()
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(1200):
                assert client.get("/absent").status_code == 404
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        os.close(writing)
