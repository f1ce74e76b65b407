"""A stand-in for a model hub, with faults: each repository name is one behaviour.

Prints its port, then serves until standard input closes. GET /log returns every request so far as
JSON: path, range, authorization, port.
"""

import hashlib
import json
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

SIZE = 300_000


def safetensors(body):
    """The bytes with the smallest header in place of the first ones."""
    return struct.pack("<Q", 2) + b"{}" + body[10:]


def gguf(body):
    return b"GGUF" + struct.pack("<I", 3) + body[8:]


RAW = bytes((i * 7 + (i >> 8)) & 0xFF for i in range(SIZE))
WEIGHTS = safetensors(RAW)
CHANGED = safetensors(bytes((i * 11 + 3) & 0xFF for i in range(SIZE)))
PAGE = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>\n"
CONFIG = b'{"model_type": "llama"}'
SHARDS = {"model-00001-of-00002.safetensors": safetensors(RAW[:1000]), "model-00002-of-00002.safetensors": safetensors(RAW[1000:3000])}
INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode()

log = []
attempts = {}
lock = threading.Lock()


def files_of(repository):
    if repository == "gguf-only":
        return {"README.md": b"x", "tiny-q8.gguf": gguf(RAW), "part-00001-of-00002.gguf": gguf(b"        one"), "part-00002-of-00002.gguf": gguf(b"        two")}
    if repository == "sharded":
        return {"config.json": CONFIG, "model.safetensors.index.json": INDEX, "consolidated.safetensors": WEIGHTS, **SHARDS}
    if repository == "traversal":
        return {"config.json": CONFIG, "../../escape.safetensors": WEIGHTS, ".hidden.safetensors": WEIGHTS}
    if repository == "page-for-config":
        return {"config.json": PAGE, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS}
    return {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickle"}


def listing(repository):
    siblings = []
    for name, content in files_of(repository).items():
        entry = {"rfilename": name}
        if repository != "unlisted-size":
            entry["size"] = len(content)
        if len(content) > 1000 and repository not in ("changed", "unlisted-size"):
            digest = "0" * 64 if repository == "bad-digest" else hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"sha256": digest, "size": len(content)}
        siblings.append(entry)
    return {"sha": "c0ffee", "siblings": siblings}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        with lock:
            log.append({"path": path, "range": self.headers.get("Range"),
                        "authorization": self.headers.get("Authorization"), "port": self.server.server_address[1]})
            attempts[path] = attempts.get(path, 0) + 1
            attempt = attempts[path]
        if path == "/log":
            with lock:
                self.answer(200, json.dumps(log).encode())
            return
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self.answer_listing(parts[3], attempt)
        elif "resolve" in parts:
            self.answer_file(parts[1], parts[-1], attempt)
        elif parts[0] == "file":
            self.send_file(gguf(RAW) if path.endswith(".gguf") else WEIGHTS, "\"plain\"")
        elif parts[0] == "page":
            self.answer(200, PAGE, Content_Type="text/html; charset=utf-8")
        elif parts[0] == "empty":
            self.answer(200, b"")
        else:
            self.answer(404, b"no such page")

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_listing(self, repository, attempt):
        if repository == "missing":
            self.answer(404, b"{}", X_Error_Message="Repository not found")
        elif repository == "private" and self.headers.get("Authorization") != "Bearer good":
            self.answer(401, b"{}", X_Error_Message="Invalid credentials")
        elif repository == "gated":
            self.answer(403, b"{}", X_Error_Message="Access to this model is restricted")
        elif repository == "no-json":
            self.answer(200, b"<html>")
        elif repository == "flaky" and attempt <= 2:
            self.answer(503, b"busy")
        else:
            self.answer(200, json.dumps(listing(repository)).encode())

    def answer_file(self, repository, name, attempt):
        content = files_of(repository).get(name)
        if content is None or name not in ("model.safetensors",):
            return self.answer(404, b"") if content is None else self.send_file(content, '"small"')
        if repository in ("redirect", "private"):
            self.answer(302, b"", X_Linked_Etag='"%s"' % hashlib.sha256(content).hexdigest(),
                        X_Linked_Size=str(len(content)), Location=f"http://127.0.0.1:{ports[1]}/file/{name}?signature=secret")
        elif repository == "cut":
            self.send_file(content, '"v1"', stop_after=100_000 if attempt <= 2 else None)
        elif repository == "always-cut":
            self.send_file(content, '"v1"', stop_after=50_000, ignore_range=True)
        elif repository == "changed":
            self.send_file(content if attempt == 1 else CHANGED, f'"v{min(attempt, 2)}"', stop_after=100_000 if attempt == 1 else None)
        elif repository == "no-range":
            self.send_file(content, '"v1"', stop_after=100_000 if attempt == 1 else None, ignore_range=True)
        elif repository == "wrong-length":
            self.send_file(content[:-10], '"v1"')
        elif repository == "short":
            self.send_file(content, '"v1"', no_length=True, stop_after=200_000)
        elif repository == "stall":
            self.send_file(content, '"v1"', stall_after=100_000 if attempt == 1 else None)
        elif repository == "slow":
            self.send_file(content, '"v1"', drip=True)
        else:
            self.send_file(content, '"v1"')

    def send_file(self, content, tag, stop_after=None, stall_after=None, drip=False, ignore_range=False, no_length=False):
        start = 0
        requested = self.headers.get("Range")
        if requested and not ignore_range:
            start = int(requested.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.answer(416, b"", Content_Range=f"bytes */{len(content)}")
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("ETag", tag)
        if no_length:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if stop_after is not None:
            self.wfile.write(body[:stop_after])
            self.close_connection = True
        elif stall_after is not None:
            self.wfile.write(body[:stall_after])
            self.wfile.flush()
            time.sleep(20)
            self.close_connection = True
        elif drip:
            for at in range(0, len(body), 50_000):
                self.wfile.write(body[at:at + 50_000])
                self.wfile.flush()
                time.sleep(0.3)
        else:
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that hangs up is part of the tests."""


servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
ports = [server.server_address[1] for server in servers]
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(ports[0], flush=True)
sys.stdin.read()
