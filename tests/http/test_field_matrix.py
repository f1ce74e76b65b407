"""Every field of every body with hostile values: what is not taken is a 4xx that names it, and nothing else changes.

The fields are those of docs/api-fields.md, which a unit test holds equal to the server's own table.
"""

import copy
import http.client
import json
import re
from pathlib import Path

import pytest

import canary

kPage = (Path(__file__).resolve().parents[2] / "docs/api-fields.md").read_text()
kCasesBetweenCanaries = 100

kValues = [
    True, 0, -1, 1.5, 1e308, 2**63 - 1, 2**64 - 1, -(2**63),
    "", "x", "\x00\u202e\ud7ff", "9" * 4096,
    [], [None], [[1, 2], ["a"]], ["x"] * 2000, {}, {"a": {"b": [1]}}, {"0": "x"},
]

kMessages = [{"role": "user", "content": "a"}]
kChat = {"messages": kMessages, "max_tokens": 1}
kCompletion = {"prompt": "a", "max_tokens": 1}
kResponse = {"input": "a", "max_output_tokens": 1, "store": False}
kFunction = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

kBlocks = {"model": "second", "messages": kMessages, "max_tokens": 1}
kOllama = {"model": "second", "stream": False, "options": {"num_predict": 1}}

# Title of a table -> path, a body that is answered, and where in it the table's fields stand.
kPlaces = {
    "POST /v1/chat/completions": ("/v1/chat/completions", kChat, []),
    "POST /v1/completions": ("/v1/completions", kCompletion, []),
    "POST /tokenize": ("/tokenize", {"prompt": "a"}, []),
    "POST /detokenize": ("/detokenize", {"tokens": [65]}, []),
    "stream_options": ("/v1/completions", kCompletion | {"stream": True, "stream_options": {}}, ["stream_options"]),
    "response_format": ("/v1/chat/completions", kChat | {"response_format": {"type": "text"}}, ["response_format"]),
    "messages[]": ("/v1/chat/completions", kChat, ["messages", 0]),
    "messages[].content[]": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "max_tokens": 1},
        ["messages", 0, "content", 0]),
    "tools[]": ("/v1/chat/completions", kChat | {"tools": [kFunction], "tool_choice": "none"}, ["tools", 0]),
    "tools[].function": (
        "/v1/chat/completions", kChat | {"tools": [kFunction], "tool_choice": "none"}, ["tools", 0, "function"]),
    "POST /v1/embeddings": ("/v1/embeddings", {"input": "a"}, []),
    "POST /v1/rerank": ("/v1/rerank", {"query": "a", "documents": ["b"]}, []),
    "POST /v1/score": ("/v1/score", {"text_1": "a", "text_2": "b"}, []),
    "POST /v1/responses": ("/v1/responses", kResponse, []),
    "input[] of /v1/responses": ("/v1/responses", kResponse | {"input": [{"role": "user", "content": "a"}]}, ["input", 0]),
    "input[].content[] of /v1/responses": (
        "/v1/responses",
        kResponse | {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]},
        ["input", 0, "content", 0]),
    "tools[] of /v1/responses": (
        "/v1/responses", kResponse | {"tools": [{"type": "function", "name": "f"}], "tool_choice": "none"}, ["tools", 0]),
    "text of /v1/responses": ("/v1/responses", kResponse | {"text": {}}, ["text"]),
    "text.format of /v1/responses": (
        "/v1/responses", kResponse | {"text": {"format": {"type": "text"}}}, ["text", "format"]),
    "reasoning of /v1/responses": ("/v1/responses", kResponse | {"reasoning": {}}, ["reasoning"]),
    "POST /v1/messages": ("/v1/messages", kBlocks, []),
    "POST /v1/messages/count_tokens": ("/v1/messages/count_tokens", {"model": "second", "messages": kMessages}, []),
    "/v1/messages: messages[]": ("/v1/messages", kBlocks, ["messages", 0]),
    "/v1/messages: messages[].content[]": (
        "/v1/messages", kBlocks | {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        ["messages", 0, "content", 0]),
    "/v1/messages: tools[]": (
        "/v1/messages", kBlocks | {"tools": [{"name": "f", "input_schema": {"type": "object"}}],
                                   "tool_choice": {"type": "none"}}, ["tools", 0]),
    "/v1/messages: thinking": ("/v1/messages", kBlocks | {"thinking": {"type": "disabled"}}, ["thinking"]),
    "/v1/messages: output_config": ("/v1/messages", kBlocks | {"output_config": {}}, ["output_config"]),
    "POST /api/chat": ("/api/chat", kOllama | {"messages": kMessages}, []),
    "POST /api/generate": ("/api/generate", kOllama | {"prompt": "a"}, []),
    "/api: options": ("/api/generate", kOllama | {"prompt": "a"}, ["options"]),
    "/api/chat: messages[]": ("/api/chat", kOllama | {"messages": kMessages}, ["messages", 0]),
    "POST /completion, POST /completions": ("/completion", {"prompt": "a", "n_predict": 1}, []),
    "POST /infill": ("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1}, []),
    "POST /api/embed": ("/api/embed", {"model": "second", "input": "a"}, []),
    "stream_options of /v1/responses": (
        "/v1/responses", kResponse | {"stream": True, "stream_options": {}}, ["stream_options"]),
}


def tables():
    """Title -> [(field, use, values that ask for nothing)], from the page."""
    found = {}
    for part in re.split(r"^## ", kPage, flags=re.M)[1:]:
        title, text = part.split("\n", 1)
        rows, use = [], None
        for line in text.splitlines():
            if line.startswith("| served"):
                use = "served"
            elif line.startswith("| not served"):
                use = "refused"
            elif match := re.match(r"\| `([^`]+)` \|(.*)$", line):
                neutral = []
                if use == "refused" and (values := re.match(r" `(.*)` \| ", match[2])):
                    neutral = json.loads(f"[{values[1]}]".replace("\\|", "|"))
                rows.append((match[1], use, neutral))
            elif line.startswith("Accepted, cannot change the answer: "):
                rows += [(name, "harmless", []) for name in re.findall(r"`([^`]+)`", line)]
        found[title.strip("`")] = rows
    return found


kTables = tables()


def body_with(place, field, value):
    path, base, inside = kPlaces[place]
    body = copy.deepcopy(base)
    target = body
    for step in inside:
        target = target[step]
    target[field] = value
    return path, body


class Connection:
    """Requests one after another over one connection."""

    def __init__(self, server):
        self.http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def post(self, path, body):
        self.http.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self.http.getresponse()
        return response.status, response.read()


def same(value, other):
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def check(place, row, value, status, text):
    field, use, neutral = row
    case = f"{place} {field}={str(value)[:60]!r}: {status} {text[:300]!r}"
    assert status == 200 or 400 <= status < 500, case
    if use == "harmless":
        assert status == 200, case
    asks = use == "refused" and not any(same(value, each) for each in neutral)
    if asks:
        assert status in (400, 422), case
    # A text that is too long or empty is named by the whole prompt that it is part of.
    is_prompt = b"maximum context length" in text or b"at least one token" in text
    if status != 200:
        assert field.encode() in text or is_prompt, case


@pytest.mark.parametrize("place", list(kPlaces))
def test_each_field_takes_refuses_or_names(request, place):
    server = request.getfixturevalue("filling" if place == "POST /infill" else "server")
    connection = Connection(server)
    status, text = connection.post(kPlaces[place][0], kPlaces[place][1])
    assert status == 200, text
    expected = canary.answer(server)
    cases = [(row, value) for row in kTables[place] for value in kValues]
    for i, (row, value) in enumerate(cases):
        path, body = body_with(place, row[0], value)
        check(place, row, value, *connection.post(path, body))
        if i % kCasesBetweenCanaries == kCasesBetweenCanaries - 1:
            assert canary.answer(server) == expected, f"after {row[0]}"
    assert canary.answer(server) == expected


def test_the_matrix_covers_the_table():
    assert set(kPlaces) <= set(kTables)
    assert sum(len(kTables[place]) for place in kPlaces) * len(kValues) >= 8000
