"""Vectors and scores of a real model, by the unmodified OpenAI SDK and as rerank clients ask."""

import base64
import math
import struct

import httpx
import openai
import pytest


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_one_text_by_the_sdk(client):
    """The SDK asks for base64 unless told otherwise, and decodes it."""
    answer = client.embeddings.create(model="second", input="Hello there")
    vector = answer.data[0].embedding
    assert answer.model == "second" and len(vector) == 64
    assert math.isclose(dot(vector, vector), 1, abs_tol=1e-5)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    plain = client.embeddings.create(model="second", input="Hello there", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(vector, abs=1e-7)


def test_a_text_has_its_vector_whatever_comes_with_it(server, client):
    texts = [f"text number {i} " * (1 + i % 7) for i in range(40)]
    together = [each.embedding for each in client.embeddings.create(model="second", input=texts).data]
    for i in (0, 13, 39):
        alone = client.embeddings.create(model="second", input=texts[i]).data[0].embedding
        assert list(alone) == list(together[i])  # bit for bit, from the cache too
    raw = httpx.post(server.url + "/v1/embeddings", json={"input": texts[3], "encoding_format": "base64"}).json()
    packed = base64.b64decode(raw["data"][0]["embedding"])
    assert list(struct.unpack("<64f", packed)) == list(together[3])


def test_ids_are_those_of_tokenize(server, client):
    ids = httpx.post(server.url + "/tokenize", json={"prompt": "some words"}).json()["tokens"]
    by_text = client.embeddings.create(model="second", input="some words").data[0].embedding
    by_ids = client.embeddings.create(model="second", input=ids).data[0].embedding
    lists = client.embeddings.create(model="second", input=[ids, ids[:2]]).data
    assert list(by_ids) == list(by_text) == list(lists[0].embedding)
    assert list(lists[1].embedding) != list(by_text)


def test_dimensions_are_cut_and_scaled(client):
    whole = client.embeddings.create(model="second", input="abc").data[0].embedding
    cut = client.embeddings.create(model="second", input="abc", dimensions=16).data[0].embedding
    length = math.sqrt(dot(whole[:16], whole[:16]))
    assert cut == pytest.approx([value / length for value in whole[:16]], abs=1e-6)


def test_what_is_wrong_is_named(client):
    for arguments, param in (({"input": []}, "input"), ({"input": "a", "dimensions": 65}, "dimensions"),
                             ({"input": [[1], [99999]]}, "input"), ({"input": "x" * 600}, "input")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="second", **arguments)
        assert caught.value.param == param, arguments


def test_rerank_and_score_agree(server):
    documents = ["apples and pears", "the weather in May", "apples"]
    ranked = httpx.post(server.url + "/v1/rerank", json={
        "model": "second", "query": "apples", "documents": documents}).json()
    assert ranked["method"] == "embedding" and ranked["results"][0]["index"] == 2
    assert ranked["results"][0]["document"]["text"] == "apples"
    scores = [result["relevance_score"] for result in ranked["results"]]
    assert scores == sorted(scores, reverse=True)
    scored = httpx.post(server.url + "/score", json={"text_1": "apples", "text_2": documents}).json()["data"]
    assert {each["index"]: each["score"] for each in scored} == {
        result["index"]: result["relevance_score"] for result in ranked["results"]}
