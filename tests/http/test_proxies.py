"""Behind nginx and HAProxy: requests keep their borders, streams come as they are made, refusals stay refusals."""

import concurrent.futures
import contextlib
import json
import random
import re
import shutil
import socket
import subprocess
import time

import httpx
import pytest

from canary import unharmed
from test_framing import kRefused

# Connections kept for later are let go soon, so that the server's descriptors can be counted after each test.
kNginx = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit;
events {{ worker_connections 512; }}
http {{
  access_log off; client_max_body_size 40m; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream headrace {{ server 127.0.0.1:{upstream}; keepalive 8; keepalive_timeout 1s; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://headrace; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_set_header Host localhost; proxy_request_buffering off; proxy_read_timeout 60s; }}
  }}
}}
"""
kHaproxy = """
global
  maxconn 512
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
frontend front
  bind 127.0.0.1:{port}
  default_backend back
backend back
  http-reuse always
  server headrace 127.0.0.1:{upstream} pool-purge-delay 500ms
"""


def find(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module", params=["nginx", "haproxy"])
def proxy(request, server, tmp_path_factory):
    program = find(request.param)
    if not program:
        pytest.skip(f"{request.param} is not installed: tools/setup.sh proxies")
    folder, port = tmp_path_factory.mktemp(request.param), free_port()
    text = kNginx if request.param == "nginx" else kHaproxy
    file = folder / "config"
    file.write_text(text.format(folder=folder, port=port, upstream=server.port))
    command = [program, "-c", str(file), "-p", str(folder)] if request.param == "nginx" else [program, "-f", str(file), "-db"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            break
        except OSError:
            assert process.poll() is None and time.monotonic() < end, process.stderr.read()
            time.sleep(0.05)
    yield port
    process.terminate()
    process.wait(timeout=30)


def test_requests_and_answers_keep_their_borders(server, proxy):
    rng = random.Random(5)
    handled = server.metric("headrace:http_requests_total")
    with httpx.Client(base_url=f"http://127.0.0.1:{proxy}", timeout=60) as client:
        for i in range(300):
            text = "".join(rng.choice("ab \n\\\"\u00e9\U0001F600") for _ in range(rng.choice([0, 1, 17, 400, 20_000])))
            body = json.dumps({"prompt": text, "add_special_tokens": False}).encode()
            content = body
            if i % 2:
                cuts = sorted(rng.randrange(len(body)) for _ in range(3))
                parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)])]
                content = iter([part for part in parts if part])  # chunked
            answer = client.post("/tokenize", content=content, headers={"x-request-id": f"id-{i}"})
            assert answer.status_code == 200 and answer.headers["x-request-id"] == f"id-{i}"
            assert answer.json()["count"] == len(text.encode())
    assert server.metric("headrace:http_requests_total") == handled + 300 + 1


def test_streams_come_as_they_are_made(server, proxy):
    body = {"prompt": "a", "max_tokens": 300, "ignore_eos": True, "stream": True}
    pieces = 0
    with httpx.stream("POST", f"http://127.0.0.1:{proxy}/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        text = ""
        for piece in answer.iter_raw():
            pieces += 1
            text += piece.decode()
    assert text.count('"finish_reason":"length"') == 1 and text.endswith("data: [DONE]\n\n")
    assert pieces >= 2, "the stream was kept back"


def test_a_client_that_leaves_the_proxy_ends_its_answer(server, proxy):
    server.wait_until_idle()
    body = {"prompt": "a", "max_tokens": 480, "ignore_eos": True, "stream": True, "n": 16}
    with httpx.stream("POST", f"http://127.0.0.1:{proxy}/v1/completions", json=body) as answer:
        next(answer.iter_raw())
    server.wait_until_idle(30)


def test_what_can_be_read_in_two_ways_reaches_nobody_twice(server, proxy):
    """Whatever the proxy makes of it, the server answers no request that the proxy did not send."""

    def send(vector):
        name, data, _ = vector
        marker = f"/hidden-{random.randrange(1 << 60)}"
        hidden = f"GET {marker} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        answer = b""
        with socket.create_connection(("127.0.0.1", proxy), timeout=60) as connection:
            connection.settimeout(2)  # most of what is sent here is never answered
            with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
                connection.sendall(data + hidden)
                while part := connection.recv(65536):
                    answer += part
        return name, marker, answer

    with unharmed(server), concurrent.futures.ThreadPoolExecutor(32) as pool:
        for name, marker, answer in pool.map(send, kRefused):
            served = len(re.findall(rb"HTTP/1\.1 \d{3} ", answer))
            seen = sum(marker in line for line in server.errors)
            assert seen <= 1, name
            assert served <= 2 and (seen == 0 or served >= 1), (name, answer)
