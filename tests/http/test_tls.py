"""HTTPS: the same server behind TLS, its certificate replaced while it runs, and clients that know no TLS."""

import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time

import httpx
import pytest

from conftest import kBinary

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="this machine has no openssl to make certificates")


def make_certificate(folder, name):
    files = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-out", str(files[0]), "-keyout", str(files[1])], check=True, capture_output=True, timeout=60)
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def secure(serve, folder):
    certificate, key = make_certificate(folder, "first")
    with serve("--context", "512", "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        yield server
        assert server.process.poll() is None, "".join(server.errors)


def trusting(path):
    return ssl.create_default_context(cafile=str(path))


@pytest.fixture
def client(secure, folder):
    with httpx.Client(base_url=secure.url, verify=trusting(folder / "first.crt"), timeout=60) as client:
        yield client


def test_requests_and_streams_work_as_without(secure, client):
    assert secure.url.startswith("https://")
    whole = client.post("/v1/completions", json={"prompt": "ab", "max_tokens": 20, "ignore_eos": True, "temperature": 0})
    assert whole.status_code == 200 and whole.json()["usage"]["completion_tokens"] == 20
    body = {"prompt": "ab", "max_tokens": 20, "ignore_eos": True, "temperature": 0, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line]
    text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines if line != "data: [DONE]")
    assert text == whole.json()["choices"][0]["text"] and lines[-1] == "data: [DONE]"
    for _ in range(20):  # one connection
        assert client.get("/health").status_code == 200
    assert client.get("/metrics").text.count("headrace:failed_handshakes_total") == 3


def test_large_bodies_and_answers_pass(client):
    answer = client.post("/tokenize", json={"prompt": "a" * 300_000, "return_token_strs": True,
                                            "add_special_tokens": False})
    assert answer.status_code == 200 and answer.json()["count"] == 300_000 and len(answer.content) > 1_000_000


def connect(secure, folder, **limits):
    context = trusting(folder / "first.crt")
    for name, value in limits.items():
        setattr(context, name, value)
    plain = socket.create_connection(("127.0.0.1", secure.port), timeout=60)
    return context.wrap_socket(plain, server_hostname="localhost")


def test_versions_and_protocols(secure, folder):
    for version, name in [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]:
        with connect(secure, folder, minimum_version=version, maximum_version=version) as connection:
            assert connection.version() == name
    old = trusting(folder / "first.crt")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        old.wrap_socket(socket.create_connection(("127.0.0.1", secure.port), timeout=60), server_hostname="localhost")
    context = trusting(folder / "first.crt")
    context.set_alpn_protocols(["h2", "http/1.1"])
    with context.wrap_socket(socket.create_connection(("127.0.0.1", secure.port), timeout=60),
                             server_hostname="localhost") as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"


def test_a_client_that_sends_no_more_gets_its_answer_and_the_end_is_said(secure, folder):
    connection = connect(secure, folder)
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = b""
    while part := connection.recv(4096):  # without a close_notify this raises
        answer += part
    assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"}")


def test_pipelined_requests_in_one_record(secure, folder):
    with connect(secure, folder) as connection:
        one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(one * 199 + one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = b""
        while part := connection.recv(65536):
            answer += part
        assert answer.count(b"HTTP/1.1 200 OK") == 200


@pytest.mark.parametrize("data", [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                  b"\x00" * 64, b"\x80\x2e\x01\x00\x02"])
def test_what_is_no_tls_is_closed(secure, client, data):
    with socket.create_connection(("127.0.0.1", secure.port), timeout=60) as connection:
        connection.sendall(data)
        said = b""
        try:
            while part := connection.recv(4096):
                said += part
        except ConnectionResetError:
            pass
        assert b"HTTP/1.1 200" not in said
    assert client.get("/health").status_code == 200


def test_the_certificate_is_replaced_without_a_restart(serve, tmp_path):
    first, second = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "two")
    files = tmp_path / "now.crt", tmp_path / "now.key"
    for source, target in zip(first, files):
        shutil.copy(source, target)
    with serve("--context", "256", "--tls-cert", str(files[0]), "--tls-key", str(files[1])) as server:
        held = httpx.Client(base_url=server.url, verify=trusting(first[0]), timeout=60)
        assert held.get("/health").status_code == 200

        def reload(message):
            seen = len(server.errors)
            server.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 60
            while not any(message in line for line in server.errors[seen:]):
                assert time.monotonic() < end and server.process.poll() is None
                time.sleep(0.02)

        shutil.copy(second[0], files[0])  # the key is still the first one's
        reload("the TLS certificate stays as it was")
        assert httpx.get(server.url + "/health", verify=trusting(first[0])).status_code == 200
        shutil.copy(second[1], files[1])
        reload("read the TLS certificate again")
        assert httpx.get(server.url + "/health", verify=trusting(second[0])).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/health", verify=trusting(first[0]))
        assert held.get("/health").status_code == 200  # connections that exist go on
        held.close()


def test_files_that_cannot_be_used_are_told_of(model, tmp_path):
    one, two = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "two")
    for options, message in [
        (["--tls-cert", str(one[0])], "--tls-cert is given, but it needs --tls-key beside it"),
        (["--tls-key", str(one[1])], "--tls-key is given, but it needs --tls-cert beside it"),
        (["--tls-cert", str(one[0]), "--tls-key", str(two[1])], "key values mismatch"),
        (["--tls-cert", str(tmp_path / "absent"), "--tls-key", str(one[1])], "cannot use the TLS certificate"),
        (["--tls-cert", str(one[0]), "--tls-key", str(one[0])], "cannot use the TLS key"),
    ]:
        done = subprocess.run([kBinary, "serve", str(model), "--quiet", "--port", "0", *options], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode != 0 and re.search(re.escape(message), done.stderr), done.stderr


def test_the_program_itself_is_a_client(serve, folder, model):
    certificate, key = make_certificate(folder, "program")
    with serve("--context", "512", "--alias", "tiny", "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        def program(*words):
            return subprocess.run([kBinary, *words, "--server", server.url], capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL)

        trusted = ["--ca", str(certificate)]
        listed = program("ps", *trusted)
        assert listed.returncode == 0 and "tiny" in listed.stdout, listed.stderr
        answered = program("run", *trusted, "--max-tokens", "4", "Hi")
        assert answered.returncode == 0 and answered.stdout, answered.stderr
        stays = program("stop", *trusted, "tiny")
        assert stays.returncode != 0 and "tiny stays" in stays.stderr, stays.stderr
        for words in (["ps"], ["run", "Hi"], ["stop", "tiny"]):
            strange = program(*words)
            assert strange.returncode == 1, words
            assert "self-signed" in strange.stderr and "--ca FILE" in strange.stderr, strange.stderr


def test_a_server_without_tls_is_told_from_one_that_is_not_there(server):
    asked = subprocess.run([kBinary, "ps", "--server", server.url.replace("http://", "https://")], capture_output=True,
                           text=True, timeout=60)
    assert asked.returncode == 1 and "without TLS is asked with http://" in asked.stderr, asked.stderr
