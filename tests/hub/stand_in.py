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
HEADER = 96  # of the safetensors files made here
GGUF_HEADER = 160


def safetensors(body):
    """The bytes as one tensor: a header in place of the first ones."""
    num_bytes = len(body) - HEADER
    header = '{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (num_bytes, num_bytes)
    return struct.pack("<Q", HEADER - 8) + header.ljust(HEADER - 8).encode() + body[HEADER:]


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(body, part=0, num_parts=1):
    """The bytes as one tensor, in a part of a split file: a header in place of the first ones."""
    keys = b"".join(gguf_text(key) + struct.pack("<IH", 2, value) for key, value in (("split.no", part), ("split.count", num_parts)))
    keys += gguf_text("split.tensors.count") + struct.pack("<Ii", 5, num_parts)
    tensor = gguf_text(f"w{part}") + struct.pack("<IQIQ", 1, len(body) - GGUF_HEADER, 24, 0)
    return (struct.pack("<4sIQQ", b"GGUF", 3, 1, 3) + keys + tensor).ljust(GGUF_HEADER, b"\0") + body[GGUF_HEADER:]


RAW = bytes((i * 7 + (i >> 8)) & 0xFF for i in range(SIZE))
WEIGHTS = safetensors(RAW)
CHANGED = safetensors(bytes((i * 11 + 3) & 0xFF for i in range(SIZE)))
PAGE = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>\n"
CONFIG = b'{"model_type": "llama"}'
SHARDS = {"model-00001-of-00002.safetensors": safetensors(RAW[:1000]), "model-00002-of-00002.safetensors": safetensors(RAW[1000:3000])}
INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode()
COMMITS = ("c0ffee", "decade")


def split(prefix, source, num_parts):
    """The parts of a split GGUF of 2,000 bytes each."""
    return {f"{prefix}-{part + 1:05}-of-{num_parts:05}.gguf": gguf(source[2000 * part:2000 * (part + 1)], part, num_parts)
            for part in range(num_parts)}


def moving(commit):
    """Two commits with files of equal sizes; the first shard is the same in both."""
    weights = RAW if commit == COMMITS[0] else CHANGED
    names = [f"model-{shard:05}-of-00003.safetensors" for shard in (1, 2, 3)]
    shards = [safetensors(RAW[:2000]), safetensors(weights[2000:4000]), safetensors(weights[4000:6000])]
    index = json.dumps({"weight_map": {"a": names[0], "b": names[1], "c": names[2]}}).encode()
    config = b'{"model_type": "%s"}' % (b"llama" if commit == COMMITS[0] else b"qwen2")
    return {"config.json": config, "model.safetensors.index.json": index, **dict(zip(names, shards, strict=True))}


log = []
attempts = {}
lock = threading.Lock()


def files_of(repository, commit):
    if repository == "gguf-only":
        return {"README.md": b"x", "tiny-q8.gguf": gguf(RAW), **split("part", RAW, 2)}
    if repository == "split":
        short = split("short", RAW, 3)
        del short["short-00002-of-00003.gguf"]
        return split("Q8/m", RAW, 3) | split("Q4/m", RAW[6000:], 3) | short
    if repository == "moving":
        return moving(commit)
    if repository == "sharded":
        return {"config.json": CONFIG, "model.safetensors.index.json": INDEX, "consolidated.safetensors": WEIGHTS, **SHARDS}
    if repository == "traversal":
        return {"config.json": CONFIG, "../../escape.safetensors": WEIGHTS, ".hidden.safetensors": WEIGHTS}
    if repository == "page-for-config":
        return {"config.json": PAGE, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS}
    if repository == "templates":
        texts = {name: b"{}" for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")}
        templates = {name: b"{{ 1 }}" for name in ("chat_template.jinja", "additional_chat_templates/tool_use.jinja")}
        return {"config.json": CONFIG, "model.safetensors": WEIGHTS, **texts, **templates}
    return {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickle"}


def listing(repository, commit):
    siblings = []
    for name, content in files_of(repository, commit).items():
        entry = {"rfilename": name}
        if repository != "unlisted-size":
            entry["size"] = len(content)
        if len(content) > 1000 and repository not in ("changed", "unlisted-size"):
            digest = "0" * 64 if repository == "bad-digest" else hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"sha256": digest, "size": len(content)}
        siblings.append(entry)
    return {"sha": commit, "siblings": siblings}


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
            self.answer_file(parts[1], parts[3], "/".join(parts[4:]), attempt)
        elif parts[0] == "file":
            self.send_file(gguf(RAW) if path.endswith(".gguf") else WEIGHTS, "\"plain\"")
        elif parts[0] == "page":
            self.answer(200, PAGE, Content_Type="text/html; charset=utf-8")
        elif parts[0] == "empty":
            self.answer(200, b"")
        elif parts[0] in ("ends-early", "then-empty", "then-no-total", "then-less"):
            self.answer_cut(parts[0], gguf(RAW) if path.endswith(".gguf") else WEIGHTS, attempt)
        else:
            self.answer(404, b"no such page")

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_cut(self, fault, content, attempt):
        """Only the beginning comes; but for "ends-early", the second answer contradicts the first and the others are right."""
        if fault == "ends-early":
            self.send_file(content, '"v1"', no_length=True, stop_after=100_000, ignore_range=True)
        elif attempt != 2:
            self.send_file(content, '"v1"', stop_after=100_000 if attempt == 1 else None)
        elif fault == "then-empty":
            self.answer(200, b"", ETag='"v1"')
        else:
            total = "*" if fault == "then-no-total" else 100_100
            self.answer(206, content[100_000:100_100], ETag='"v1"', Content_Range=f"bytes 100000-100099/{total}")

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
            moved = repository == "moving" and attempt > 1
            self.answer(200, json.dumps(listing(repository, COMMITS[moved])).encode())

    def answer_file(self, repository, commit, name, attempt):
        content = files_of(repository, commit).get(name)
        if repository == "moving" and commit == COMMITS[0] and name.startswith("model-00003"):
            return self.answer(404, b"")
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
