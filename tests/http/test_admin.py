"""The administration's Unix socket: who may open it, and what it does to a running server."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import threading
import time

import httpx
import pytest

from conftest import kBinary


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "admin.sock")


def admin(path):
    return httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://admin", timeout=60)


def eventually(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_socket_is_for_its_user_alone_and_goes_with_the_server(serve, path):
    with serve("--context", "256", "--admin-socket", path) as server:
        mode = os.stat(path).st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
        with admin(path) as client:
            assert client.get("/requests").json() == {"requests": []}
            assert client.post("/absent").status_code == 404
            assert client.get("/v1/models").status_code == 404
            assert client.post("/v1/completions", json={"prompt": "a"}).status_code == 404
        assert server.stop() == 0
        assert not os.path.exists(path)


def test_other_users_are_not_served(serve, path):
    if os.geteuid() != 0:
        pytest.skip("only root can ask as another user")
    with serve("--context", "256", "--admin-socket", path) as server:
        os.chmod(path, 0o666)  # even where the file lets them in
        folder = os.path.dirname(path)
        while folder != "/":
            os.chmod(folder, os.stat(folder).st_mode | 0o111)
            folder = os.path.dirname(folder)
        script = ("import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1]);"
                  "s.sendall(b'GET /requests HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'); sys.stdout.write(repr(s.recv(100)))")
        asked = subprocess.run(["/usr/bin/python3", "-c", script, path], user=65534, group=65534, capture_output=True,
                               text=True, timeout=60, extra_groups=[], cwd="/")
        assert "HTTP/1.1 200" not in asked.stdout and "requests" not in asked.stdout, asked
        with admin(path) as client:
            assert client.get("/requests").status_code == 200
        eventually(lambda: any("uid 65534 may not use" in line for line in server.errors))


def test_none_of_it_is_on_the_network(serve, path):
    with serve("--context", "256", "--admin-socket", path) as server:
        for method, route in [("GET", "/requests"), ("POST", "/requests/abort"), ("POST", "/cache/reset"),
                              ("POST", "/log_level"), ("POST", "/admin/cache/reset")]:
            assert httpx.request(method, server.url + route, json={} if method == "POST" else None).status_code == 404
        page = httpx.get(server.url + "/profile")  # a page has that name
        assert page.status_code == 404 or page.headers["content-type"].startswith("text/html")


def test_a_request_is_ended_by_its_id(serve, path):
    with serve("--context", "512", "--admin-socket", path) as server, admin(path) as client:
        lines = []

        def stream(name):
            body = {"prompt": "a", "max_tokens": 480, "ignore_eos": True, "stream": True, "n": 8}
            with httpx.stream("POST", server.url + "/v1/completions", json=body, headers={"x-request-id": name}) as answer:
                lines.extend(answer.iter_lines())

        ended = 0
        for attempt in range(20):  # the tiny model may be faster than we are
            lines.clear()
            thread = threading.Thread(target=stream, args=(f"mine-{attempt}",))
            thread.start()
            while thread.is_alive():
                listed = client.get("/requests").json()["requests"]
                if listed:
                    assert listed[0]["request_id"] == f"mine-{attempt}" and listed[0]["seconds"] >= 0
                    ended = client.post("/requests/abort", json={"id": f"mine-{attempt}"}).status_code == 200
                    break
            thread.join(timeout=60)
            if ended and any("administrator" in line for line in lines):
                break
        assert ended and any("administrator" in line for line in lines)
        assert "data: [DONE]" not in lines
        eventually(lambda: client.get("/requests").json()["requests"] == [])
        assert client.post("/requests/abort", json={"id": "absent"}).status_code == 404
        assert client.post("/requests/abort", json={}).status_code == 400
        assert client.post("/requests/abort", content=b"[").status_code == 400
        server.wait_until_idle()


def test_the_cache_is_forgotten(serve, path):
    with serve("--context", "512", "--admin-socket", path) as server, admin(path) as client:
        def cached():
            answer = httpx.post(server.url + "/v1/completions", json={"prompt": "x" * 200, "max_tokens": 1})
            return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert [cached(), cached() > 100] == [0, True]
        assert client.post("/cache/reset").json() == {"models": 1}
        assert [cached(), cached() > 100] == [0, True]


def test_the_log_level_changes(serve, path):
    with serve("--context", "256", "--admin-socket", path, "--log-level", "error") as server, admin(path) as client:
        def ask():
            with httpx.Client(base_url=server.url) as connection:
                connection.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
                connection.get("/health")  # answered when what was before it on the connection is logged, if at all

        ask()
        assert client.post("/log_level", json={"level": "info"}).status_code == 204
        ask()
        eventually(lambda: any("request POST /v1/completions" in line for line in server.errors))
        assert sum("request POST /v1/completions" in line for line in server.errors) == 1
        assert client.post("/log_level", json={"level": "loud"}).status_code == 400


def test_the_newest_steps_are_shown(serve, path):
    with serve("--context", "256", "--admin-socket", path) as server, admin(path) as client:
        httpx.post(server.url + "/v1/completions", json={"prompt": "abc", "max_tokens": 5, "ignore_eos": True})
        steps = client.get("/profile").json()["models"][0]["steps"]
        assert len(steps) == 5 and steps[0]["tokens"] >= 3 and steps[-1]["spans"][0]["tokens"] == 1
        assert len(client.get("/profile?steps=2").json()["models"][0]["steps"]) == 2


def test_a_second_server_does_not_take_the_socket(serve, model, path):
    with serve("--context", "256", "--admin-socket", path):
        done = subprocess.run([kBinary, "serve", str(model), "--quiet", "--port", "0", "--admin-socket", path],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "another server does" in done.stderr
        with admin(path) as client:
            assert client.get("/requests").status_code == 200


def test_a_socket_that_a_dead_server_left_is_replaced(serve, path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    with serve("--context", "256", "--admin-socket", path), admin(path) as client:
        assert client.get("/requests").status_code == 200


def test_a_file_at_the_path_is_left_alone(model, path):
    with open(path, "w") as file:
        json.dump({}, file)
    done = subprocess.run([kBinary, "serve", str(model), "--quiet", "--port", "0", "--admin-socket", path],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "a file is there" in done.stderr and os.path.getsize(path) == 2
    with contextlib.suppress(OSError):
        os.remove(path)
