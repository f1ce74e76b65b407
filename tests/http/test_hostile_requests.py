"""Bodies at random on every route, and clients that leave, fall silent or send half at every stage."""

import json
import os
import random
import socket

import httpx
import pytest

import tiny_model
from canary import unharmed

kRounds = 20 if os.environ.get("HEADRACE_FULL") == "1" else 1
kTools = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": [1, None]}}}}}]
kBodies = {
    "/v1/chat/completions": {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [
        {"type": "text", "text": "a"}]}, {"role": "assistant", "content": "x", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "y"}], "tools": kTools, "tool_choice": "auto", "n": 2,
        "max_tokens": 3, "stop": ["a"], "logprobs": True, "top_logprobs": 2, "logit_bias": {"5": 1},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "stream_options": {"include_usage": True}, "chat_template_kwargs": {"a": 1}, "reasoning_effort": "low"},
    "/v1/completions": {"prompt": ["a", "b"], "max_tokens": 3, "echo": True, "logprobs": 1, "best_of": 1, "seed": 1, "guided_regex": "[a-z]+", "min_tokens": 1, "stop_token_ids": [5]},
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 8},
    "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                                {"type": "function_call_output", "call_id": "c", "output": "o"}], "store": True,
                      "tools": [{"type": "custom", "name": "g", "format": {
                          "type": "grammar", "syntax": "lark", "definition": "start: \"a\" /[b-d]+/"}}],
                      "max_output_tokens": 3, "previous_response_id": None, "text": {"format": {"type": "text"}},
                      "reasoning": {"effort": "low"}, "truncation": "disabled", "include": []},
    "/v1/messages": {"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
                     "system": [{"type": "text", "text": "s"}], "stop_sequences": ["b"], "thinking": {
                         "type": "enabled", "budget_tokens": 1024}, "tools": [{"name": "f", "input_schema": {}}]},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/rerank": {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1},
    "/v1/score": {"text_1": "a", "text_2": ["b"]},
    "/api/chat": {"messages": [{"role": "user", "content": "a"}], "options": {"num_predict": 3},
                  "format": {"type": "object"}, "keep_alive": "5m", "stream": False, "tools": kTools},
    "/api/generate": {"prompt": "a", "system": "c", "context": [1], "raw": False,
                      "options": {"num_predict": 3, "stop": ["x"]}, "keep_alive": 10},
    "/api/embed": {"input": ["a"], "truncate": True},
    "/api/show": {"model": "../../etc/passwd", "verbose": True},
    "/api/pull": {"model": "http://169.254.169.254/x", "insecure": True},
    "/v1/load_lora_adapter": {"lora_name": "x", "lora_path": "../../../etc"},
    "/v1/unload_lora_adapter": {"lora_name": "x"},
    "/tokenize": {"prompt": "a", "messages": None, "add_special_tokens": True},
    "/detokenize": {"tokens": [1, 2]},
    "/completion": {"prompt": ["a", 5], "n_predict": 3, "grammar": "root ::= \"a\""},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c", "filename": "d"}]},
    "/apply-template": {"messages": [{"role": "user", "content": "a"}]},
}
kValues = [None, True, -1, 0, 1.5, 2**53 + 1, -2**63, 1e308, "", "a", "\x00", "\ud800", "\U0010ffff\ufdd0\U0010f000",
           "../" * 40, "a" * 5000, [], {}, [[]], [None], {"": None}, [[[[[[[[]]]]]]]], ["x"] * 300, {"type": "x"},
           {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}, "<|im_end|>", "{{ 7 * 7 }}", "(a*)*b", "start: start", {"$ref": "#"}]


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    for key, item in items:
        yield from places(item, path + (key,))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def mutated(rng, body):
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        where = rng.choice([path for path in places(body) if path])
        body = replaced(body, where, rng.choice(kValues))
        if rng.random() < 0.2:
            body[rng.choice(["stream", "model", "priority", "n", "max_tokens"])] = rng.choice(kValues)
    return body


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    model = tiny_model.write(folder / "tiny", template=tiny_model.kToolTemplate, context=2048)
    (folder / "adapters").mkdir()
    with serve("--context", "512", "--adapter-root", str(folder / "adapters"), model=model) as running:
        yield running
        assert running.process.poll() is None, "the server died:\n" + "".join(running.errors)
        assert running.stop() == 0


def test_no_body_is_answered_with_a_fault(server):
    rng = random.Random(5)
    codes = {}
    with unharmed(server), httpx.Client(base_url=server.url, timeout=60) as client:
        for route, body in kBodies.items():
            for _ in range(25 * kRounds):
                sent = json.dumps(mutated(rng, body)).encode()
                answer = client.post(route, content=sent, headers={"Content-Type": "application/json"})
                codes[answer.status_code] = codes.get(answer.status_code, 0) + 1
                assert answer.status_code < 500 or answer.status_code in (501, 503), (route, sent, answer.text)
                if answer.status_code >= 400:
                    assert "error" in answer.json(), (route, sent, answer.text)
                    assert "/src/" not in answer.text and "0x7f" not in answer.text
    print(codes)
    assert codes.get(200, 0) > 50 and codes.get(400, 0) > 100


def requests_of(rng):
    """Whole requests: streams and others, on the routes that compute."""
    for route in ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat", "/completion"]:
        for stream in (False, True):
            body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "input": "a", "stream": stream,
                    "max_tokens": 40, "max_output_tokens": 40, "n_predict": 40, "ignore_eos": True}
            keep = {"/v1/chat/completions": ["messages"], "/v1/completions": ["prompt"], "/v1/responses": ["input"],
                    "/v1/messages": ["messages"], "/api/chat": ["messages"], "/completion": ["prompt"]}[route]
            names = keep + ["stream", "max_output_tokens" if route == "/v1/responses" else "max_tokens"]
            if route == "/completion":
                names[-1] = "n_predict"
            if route == "/api/chat":
                names.pop()
            data = json.dumps({name: body[name] for name in names}).encode()
            yield b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
                route.encode(), len(data), data)


def test_who_leaves_at_any_stage_leaves_nothing_behind(server):
    rng = random.Random(6)
    with unharmed(server):
        for data in list(requests_of(rng)) * (3 * kRounds):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                how = rng.choice(["cut", "read some", "reset", "half", "twice", "rubbish behind"])
                if how == "cut":
                    connection.sendall(data[:rng.randrange(1, len(data))])
                    continue
                connection.sendall(data * 2 if how == "twice" else data)
                if how == "rubbish behind":
                    connection.sendall(b"\x00\xff" * 50)
                if how == "half":  # it may still be answered, and then the connection ends
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                    continue
                connection.recv(rng.choice([1, 20, 400]))
                if how == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        server.wait_until_idle()


def test_methods_and_targets_that_are_nothing(server):
    targets = ["/", "//", "/%00", "/%2e%2e/%2e%2e/etc/passwd", "/..;/admin", "/v1/models/%ff", "/v1/models/" + "a" * 4000,
               "*", "http://evil/v1/models", "/v1/responses/%0d%0aX: y", "/?" + "a=b&" * 500, "/assets/../../etc/passwd",
               "/api/headrace/status/../requests", "/V1/Models", "/v1/models?" + "%" * 9]
    with unharmed(server):
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "PROPFIND", "get", "CONNECT"]:
            for target in targets:
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                    connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    answer = b""
                    while piece := connection.recv(65536):
                        answer += piece
                assert answer[:9] == b"HTTP/1.1 " and answer[9:10] in b"234", (method, target, answer[:200])
                assert b"root:" not in answer and b"\r\nX: y" not in answer
