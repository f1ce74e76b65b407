"""Answers that are held to a form: schemas, expressions and grammars, from a model that writes at random."""

import concurrent.futures
import json
import os
import random
import re

import httpx
import jsonschema
import openai
import pytest

import canary

kNumSchemas = 2000 if os.environ.get("HEADRACE_FULL") == "1" else 300
kWords = ["a", "name", "x y", "\u00e9t\u00e9", "kind", "0", "long_property_name"]


class Schemas:
    """Random schemas of what is enforced, and nothing else."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.num_definitions = 0

    def schema(self):
        body = self.any(0)
        if self.random.random() < 0.3:
            body = {"type": "object", "properties": {"list": {"$ref": "#/$defs/list"}}, "required": ["list"],
                    "additionalProperties": False,
                    "$defs": {"list": {"anyOf": [{"type": "null"}, {
                        "type": "object", "properties": {"value": body, "next": {"$ref": "#/$defs/list"}},
                        "required": ["value", "next"], "additionalProperties": False}]}}}
        return body

    def any(self, depth):
        plain = [self.null, self.boolean, self.integer, self.number, self.string, self.constant, self.choice]
        nested = [self.array, self.pair, self.object, self.object, self.mapping, self.either]
        return self.random.choice(plain if depth >= 3 else plain + nested)(depth)

    def null(self, _):
        return {"type": "null"}

    def boolean(self, _):
        return {"type": "boolean"}

    def integer(self, _):
        low = self.random.randint(-1000, 1000)
        schema = {"type": "integer"}
        if self.random.random() < 0.7:
            schema |= {"minimum": low, "maximum": low + self.random.randint(0, 500)}
        elif self.random.random() < 0.5:
            schema |= {"multipleOf": self.random.choice([2, 3, 7, 10])}
        return schema

    def number(self, _):
        low = self.random.uniform(-10, 10)
        return {"type": "number", "minimum": round(low, 2), "exclusiveMaximum": round(low + 5, 2)}

    def string(self, _):
        low = self.random.randint(0, 5)
        return self.random.choice([
            {"type": "string", "minLength": low, "maxLength": low + self.random.randint(0, 10)},
            {"type": "string", "maxLength": 12, "pattern": self.random.choice(["^[a-z]+$", "^\\d{1,4}-[A-F]{2}$", "^(yes|no)$"])},
            {"type": "string", "format": self.random.choice(["date", "uuid", "ipv4", "time"])},
        ])

    def constant(self, _):
        return {"const": self.random.choice([1, -2, "x", "\u00fc\"\\\n", None, True, [1, "a"], {"b": False}])}

    def choice(self, _):
        return {"enum": self.random.sample(["red", "green", "blue", 7, 8, None, False, "re"], self.random.randint(1, 5))}

    def array(self, depth):
        low = self.random.randint(0, 2)
        return {"type": "array", "items": self.any(depth + 1), "minItems": low, "maxItems": low + self.random.randint(0, 2)}

    def pair(self, depth):
        items = [self.any(depth + 1) for _ in range(self.random.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}

    def object(self, depth):
        names = self.random.sample(kWords, self.random.randint(0, 4))
        return {"type": "object", "properties": {name: self.any(depth + 1) for name in names},
                "required": [name for name in names if self.random.random() < 0.6], "additionalProperties": False}

    def mapping(self, depth):
        return {"type": "object", "additionalProperties": self.any(depth + 1), "maxProperties": 2}

    def either(self, depth):
        return {"anyOf": [self.any(depth + 1) for _ in range(self.random.randint(1, 3))]}


def complete(server, body, path="/v1/completions"):
    usual = {"prompt": "x", "max_tokens": 400, "temperature": 1.5, "seed": 1}
    return httpx.post(server.url + path, json=usual | body, timeout=300)


def text_of(answer):
    choice = answer.json()["choices"][0]
    return choice["text"], choice["finish_reason"]


@pytest.fixture(scope="module")
def server(serve):
    with serve() as running:
        yield running


def test_no_answer_to_a_random_schema_is_invalid(server):
    def ask(seed):
        schema = Schemas(seed).schema()
        answer = complete(server, {"guided_json": schema, "seed": seed, "prompt": f"{seed}"})
        assert answer.status_code == 200, (schema, answer.text)
        text, reason = text_of(answer)
        if reason == "length":
            return 0
        assert reason == "stop"
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator,
                            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        return 1

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        finished = sum(pool.map(ask, range(kNumSchemas)))
    print(f"{finished} of {kNumSchemas} schemas were finished, the others ended by length")
    assert finished > kNumSchemas * 0.6


@pytest.mark.parametrize("field,value,pattern", [
    ("guided_regex", "[a-f]{3}-\\d{2}", "[a-f]{3}-[0-9]{2}"),
    ("guided_choice", ["yes", "no", "yesterday"], "yes|no|yesterday"),
    ("guided_grammar", "start: \"(\" /[0-9]{1,3}/ \")\"", r"\([0-9]{1,3}\)"),
    ("guided_grammar", "root ::= \"<\" [a-z]{2,4} \">\"", "<[a-z]{2,4}>"),
    ("structured_outputs", {"regex": "ab{1,2}"}, "ab{1,2}"),
    ("response_format", {"type": "regex", "pattern": "x[yz]"}, "x[yz]"),
])
def test_every_kind_of_form(server, field, value, pattern):
    for temperature in (0, 1.5):
        text, reason = text_of(complete(server, {field: value, "temperature": temperature}))
        assert reason == "stop" and re.fullmatch(pattern, text), text


def test_choices_log_probs_and_streams(server):
    client = server.client()
    asked = dict(model="", prompt="x", max_tokens=60, temperature=1.2, seed=7, n=4, logprobs=2,
                 extra_body={"guided_json": {"type": "array", "items": {"enum": ["ab", "cd"]}, "minItems": 2, "maxItems": 3}})
    whole = client.completions.create(**asked)
    texts = [choice.text for choice in whole.choices]
    assert all(json.loads(text) for text in texts) and len(set(texts)) > 1
    for choice in whole.choices:
        assert "".join(choice.logprobs.tokens) == choice.text
    streamed = ["", "", "", ""]
    for chunk in client.completions.create(stream=True, **asked):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts


def test_penalties_min_tokens_and_stop_strings(server):
    text, reason = text_of(complete(server, {"guided_regex": "[ab]{4,40}", "min_tokens": 20, "repetition_penalty": 1.3,
                                             "presence_penalty": 1, "logit_bias": {"97": -50}}))
    assert reason == "stop" and 20 <= len(text) <= 40
    text, reason = text_of(complete(server, {"guided_regex": "ab", "min_tokens": 50}))
    assert (text, reason) == ("ab", "stop")
    text, reason = text_of(complete(server, {"guided_regex": "ab", "ignore_eos": True}))
    assert (text, reason) == ("ab", "stop")
    text, reason = text_of(complete(server, {"guided_regex": "abcdef", "stop": ["cd"]}))
    assert (text, reason) == ("ab", "stop")
    text, reason = text_of(complete(server, {"guided_regex": "a{100}", "max_tokens": 10}))
    assert (text, reason) == ("a" * 10, "length")


def test_parse_helper_of_the_python_client(server):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
              "required": ["ok", "kind"], "additionalProperties": False}
    answer = server.client().chat.completions.create(
        model="", messages=[{"role": "user", "content": "hi"}], temperature=1.0, seed=3,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}})
    jsonschema.validate(json.loads(answer.choices[0].message.content), schema)
    answer = server.client().chat.completions.create(
        model="", messages=[{"role": "user", "content": "hi"}], max_tokens=200, temperature=0.0,
        response_format={"type": "json_object"}, extra_body={"structured_outputs": None})
    assert answer.choices[0].message.content.startswith("{")


@pytest.mark.parametrize("body,param,reason", [
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "array", "uniqueItems": True}}}},
     "response_format.json_schema.schema", "uniqueItems"),
    ({"guided_json": {"properties": {"a": {"not": {}}}}}, "guided_json", "properties.a"),
    ({"guided_json": {"properties": {"a": {"type": "integer", "minimum": 2**64 - 1}}}}, "guided_json",
     "minimum has a number beyond 2^53, which is not kept exactly (in properties.a)"),
    ({"guided_json": {"type": "object", "patternProperties": {"^a$": {"type": "integer"}}, "minProperties": 2}}, "guided_json",
     "minProperties 2 would count a name that is written twice as two"),
    ({"guided_json": {"const": 2**53 + 1}}, "guided_json", "const has a number beyond 2^53"),
    ({"guided_regex": "(?=a)b"}, "guided_regex", "cannot be enforced"),
    ({"guided_regex": "(" * 50_000}, "guided_regex", "cannot be enforced"),
    ({"guided_grammar": "root ::= x"}, "guided_grammar", "x"),
    ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "guided_regex"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "JSON"),
    ({"response_format": {"type": "yaml"}}, "response_format.type", "yaml"),
    ({"response_format": {"type": "json_schema"}}, "response_format.schema", "missing"),
    ({"guided_json": "x" * 300_000}, "guided_json", "262144"),
])
def test_what_cannot_be_enforced_is_refused(server, body, param, reason):
    answer = complete(server, body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and reason in error["message"]
    for _ in range(2):  # and from the cache
        assert complete(server, body).json()["error"] == error


def test_forms_do_not_change_their_neighbours(server):
    before = canary.answer(server)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        others = [pool.submit(complete, server, {"guided_json": Schemas(seed).schema(), "seed": seed}) for seed in range(40)]
        during = [canary.answer(server) for _ in range(5)]
        assert all(each == before for each in during)
        assert all(other.result().status_code == 200 for other in others)


def test_the_same_request_gives_the_same_answer(server):
    body = {"guided_json": Schemas(5).schema(), "seed": 11, "temperature": 1.3}
    alone = text_of(complete(server, body))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda _: text_of(complete(server, body)), range(16)))
    assert set(together) == {alone}


def test_a_client_sees_the_reason(server):
    with pytest.raises(openai.BadRequestError) as error:
        server.client().completions.create(model="", prompt="x", extra_body={"guided_json": {"uniqueItems": True}})
    assert "uniqueItems" in str(error.value)
