"""Who may ask: keys, hosts, origins, content types; and what a browser is told."""

import gzip
import os
import signal
import socket
import subprocess
import time

import httpx
import pytest

from conftest import kBinary

kPrompt = {"prompt": "a", "max_tokens": 1}


def ask(server, headers=None, **options):
    return httpx.post(server.url + "/v1/completions", json=kPrompt, headers=headers, timeout=30, **options)


@pytest.mark.parametrize("host, status", [
    ("localhost:{port}", 200), ("127.0.0.1:{port}", 200), ("[::1]:{port}", 200), ("box", 200), ("a.localhost", 200),
    ("evil.example", 403), ("evil.example:{port}", 403), ("127.0.0.1.evil.example", 403), ("localhost.", 403),
    ("127.0.0.1.", 403),
])
def test_a_name_that_may_be_rebound_is_no_host(server, host, status):
    host = host.format(port=server.port)
    response = ask(server, {"Host": host})
    assert response.status_code == status
    if status == 403:
        assert "--allowed-hosts" in response.json()["error"]["message"]
        assert httpx.get(server.url + "/", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1",
                                    "file://localhost:{port}", "http://localhost:{port}.evil.example"])
def test_pages_of_other_origins_are_refused(server, origin):
    origin = origin.format(port=server.port)
    for method, path in [("POST", "/v1/completions"), ("GET", "/v1/models"), ("OPTIONS", "/v1/completions")]:
        response = httpx.request(method, server.url + path, headers={"Origin": origin})
        assert response.status_code == 403, (method, path)
        assert "access-control-allow-origin" not in response.headers


def test_the_page_itself_may_ask(server):
    for host in [f"localhost:{server.port}", f"127.0.0.1:{server.port}"]:
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert ask(server, headers).status_code == 200
        assert httpx.get(server.url + "/", headers=headers).status_code == 200
    # A link on another site may open the page.
    assert httpx.get(server.url + "/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_a_post_of_another_site_without_an_origin_is_refused(server):
    assert ask(server, {"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert ask(server, {"Sec-Fetch-Site": "same-site"}).status_code == 403


@pytest.mark.parametrize("content_type, browser, status", [
    ("application/json", False, 200), ("application/json", True, 200), ("Application/JSON; charset=utf-8", True, 200),
    ("application/x-www-form-urlencoded", False, 200), ("application/x-www-form-urlencoded", True, 415),
    ("text/plain", False, 415), ("text/plain;charset=UTF-8", True, 415), ("multipart/form-data; boundary=a", False, 415),
    (None, False, 200),
])
def test_content_types(server, content_type, browser, status):
    headers = {"Content-Type": content_type} if content_type else {}
    if browser:
        headers |= {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    response = httpx.post(server.url + "/v1/completions", content=b'{"prompt":"a","max_tokens":1}', headers=headers)
    assert response.status_code == status
    if status == 415:
        assert response.json()["error"]["message"].endswith("but it must be application/json")


def test_cors_for_those_who_ask_for_it(serve):
    with serve("--context", "256", "--cors-origins", "https://chat.example,http://localhost:3000", "--allowed-hosts",
               "llm.example") as server:
        origin = {"Origin": "https://chat.example"}
        preflight = httpx.options(server.url + "/v1/completions", headers=origin | {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://chat.example"
        assert preflight.headers["access-control-allow-methods"] == "POST"
        assert preflight.headers["access-control-allow-headers"] == "authorization, content-type, x-stainless-os"
        for response in [ask(server, origin), httpx.post(server.url + "/v1/completions", json=[], headers=origin),
                         httpx.get(server.url + "/absent", headers=origin),
                         httpx.post(server.url + "/v1/completions", json=kPrompt | {"stream": True}, headers=origin)]:
            assert response.headers["access-control-allow-origin"] == "https://chat.example"
            assert "Origin" in response.headers["vary"] and "credentials" not in str(response.headers).lower()
            assert "x-request-id" in response.headers["access-control-expose-headers"]
        other = ask(server, {"Origin": "https://evil.example"})
        assert other.status_code == 403 and "access-control-allow-origin" not in other.headers
        assert "Origin" in other.headers["vary"]
        assert ask(server, {"Host": "llm.example"}).status_code == 200
        assert ask(server, {"Host": "other.example"}).status_code == 403


def test_keys_of_option_and_file(serve, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# keys of two users\n\nfirst-key\r\n  second-key  \n")
    with serve("--context", "256", "--api-key", "option-key", "--api-key-file", str(file)) as server:
        for key in ["option-key", "first-key", "second-key"]:
            assert ask(server, {"Authorization": f"Bearer {key}"}).status_code == 200
            assert ask(server, {"authorization": f"bearer {key}"}).status_code == 200
            assert ask(server, {"x-api-key": key}).status_code == 200
        for headers in [{}, {"Authorization": "Bearer first-ke"}, {"Authorization": "Bearer first-keys"},
                        {"Authorization": "Basic first-key"}, {"x-api-key": ""}, {"x-api-key": "# keys of two users"}]:
            response = ask(server, headers)
            assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
        for path in ["/v1/models", "/metrics", "/api/headrace/status", "/api/headrace/requests", "/tokenizer_info"]:
            assert httpx.get(server.url + path).status_code == 401
        for path in ["/", "/health", "/ready", "/version"]:
            response = httpx.get(server.url + path)
            assert response.status_code == 200 and "-key" not in response.text
        assert "option-key" not in open(f"/proc/{server.process.pid}/cmdline").read()
    assert any("request POST" in line for line in server.errors)
    keys = ["option-key", "first-key", "second-key"]
    assert not [line for line in server.errors if any(key in line for key in keys)]


def test_a_body_without_a_key_is_not_read(serve):
    with serve("--context", "256", "--api-key", "k") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.settimeout(60)
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 401"


def run(model, *options, environment=None):
    return subprocess.run([kBinary, "serve", str(model), "--quiet", *options], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **(environment or {})})


def test_bad_key_files_are_told_of(model, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    spaces = tmp_path / "spaces"
    spaces.write_text("good\nnot good\n")
    for file, message in [(empty, "holds no API key"), (spaces, "holds in line 2 what is no API key"),
                          (tmp_path / "absent", "cannot read the API keys in")]:
        done = run(model, "--port", "0", "--api-key-file", str(file))
        assert done.returncode != 0 and message in done.stderr and "good" not in done.stderr.replace("no good", "")


def test_beyond_loopback_a_server_has_keys_or_is_told_twice(serve, model):
    done = run(model, "--port", "0", "--host", "0.0.0.0")
    assert done.returncode == 2 and "--host is 0.0.0.0, which others reach, and there are no API keys" in done.stderr
    assert "--insecure-no-keys" in done.stderr and "listening" not in done.stdout
    with serve("--context", "256", "--host", "0.0.0.0", "--insecure-no-keys") as server:
        assert httpx.get(f"http://127.0.0.1:{server.port}/health", headers={"Host": "llm.example"}).status_code == 200
    assert any("anyone who reaches 0.0.0.0" in line for line in server.errors)
    with serve("--context", "256", "--host", "0.0.0.0", "--api-key", "k") as server:
        pass
    assert not any("anyone who reaches" in line for line in server.errors)


def make_key(*arguments):
    """The line for a file, and the key."""
    done = subprocess.run([kBinary, "key", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.removeprefix("key: ").strip()


def test_hashed_keys_have_scopes_and_change_without_a_restart(serve, tmp_path):
    ann, anns_key = make_key("ann")
    prometheus, prometheus_key = make_key("prometheus", "--scopes", "metrics")
    assert anns_key not in ann and anns_key.startswith("hr-") and len(anns_key) == 67
    file = tmp_path / "keys"
    file.write_text("# made by headrace key\n" + ann + prometheus)

    def status(server, key, path):
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.get(server.url + path, headers=headers).status_code

    with serve("--context", "256", "--api-key-file", str(file)) as server:
        assert ask(server, {"Authorization": f"Bearer {anns_key}"}).status_code == 200
        assert ask(server, {"Authorization": f"Bearer {ann.split()[2]}"}).status_code == 401  # a digest is no key
        assert [status(server, anns_key, path) for path in ["/v1/models", "/metrics"]] == [200, 403]
        assert [status(server, prometheus_key, path) for path in ["/v1/models", "/metrics"]] == [403, 200]
        assert httpx.get(server.url + "/absent").status_code == 401
        assert status(server, anns_key, "/absent") == 404

        newer, newer_key = make_key("ann", "--scopes", "inference,metrics")
        file.write_text(newer)
        reload(server, "read 1 API keys again")
        assert status(server, anns_key, "/v1/models") == 401 and status(server, prometheus_key, "/metrics") == 401
        assert status(server, newer_key, "/v1/models") == 200 and status(server, newer_key, "/metrics") == 200

        file.write_text("not a key of any kind\n")
        reload(server, "the API keys stay as they were")
        assert status(server, newer_key, "/v1/models") == 200
    lines = "".join(server.errors)
    assert " key=ann" in lines and " key=prometheus" in lines
    assert not any(key in lines for key in [anns_key, prometheus_key, newer_key, ann.split()[2], "of any kind"])


def reload(server, message):
    seen = len(server.errors)
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 60
    while not any(message in line for line in server.errors[seen:]):
        assert time.monotonic() < end and server.process.poll() is None, "".join(server.errors)
        time.sleep(0.02)


def test_bad_names_and_scopes_of_keys_are_told_of():
    for arguments, message in [(["a b"], "the name is 'a b'"), (["ann", "--scopes", "root"], "the scopes are 'root'")]:
        done = subprocess.run([kBinary, "key", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and message in done.stderr and done.stdout == ""


@pytest.mark.parametrize("accepted, coding", [
    (None, None), ("", None), ("identity", None), ("gzip", "gzip"), ("gzip;q=0", None), ("gzip;q=0.5, identity", None),
    ("br, gzip;q=0.8", "gzip"), ("*", "gzip"), ("deflate", None), ("identity;q=0, gzip", "gzip"), ("GZIP;Q=1", "gzip"),
])
def test_the_page_comes_in_a_coding_that_the_client_takes(server, accepted, coding):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        request = client.build_request("GET", "/")
        del request.headers["accept-encoding"]
        if accepted is not None:
            request.headers["accept-encoding"] = accepted
        response = client.send(request, stream=True)
        raw = b"".join(response.iter_raw())
        if "etag" not in response.headers:
            pytest.skip("this build has no page")
        assert response.headers.get("content-encoding") == coding and response.headers["vary"] == "Accept-Encoding"
        text = gzip.decompress(raw) if coding else raw
        assert text.lstrip().lower().startswith(b"<!doctype html")
        request.headers["if-none-match"] = '"other", W/' + response.headers["etag"]
        assert client.send(request).status_code == 304
        request.headers["accept-encoding"] = "identity;q=0"
        assert client.send(request).status_code == 406
