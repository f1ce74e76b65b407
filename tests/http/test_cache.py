"""What a real process tells of its prefix cache, and the log-probs that it keeps beside it."""

import httpx
import pytest


def complete(server, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True, **fields}
    response = httpx.post(server.url + "/v1/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


def details(answer):
    return answer["usage"]["prompt_tokens_details"]


def test_a_named_conversation_hears_which_token_differs(server):
    story = list(range(20, 80))
    assert "cache_miss" not in details(complete(server, story, prompt_cache_key="talk"))
    edited = story[:35] + [7] + story[36:]
    told = details(complete(server, edited, prompt_cache_key="talk"))
    assert told["cached_tokens"] >= 32
    assert told["cache_miss"] == {"reason": "edited", "offset": 35, "was_token": story[35], "is_token": 7}
    # Of a conversation that it does not name nobody hears anything.
    stranger = details(complete(server, story[:40] + [8] + story[41:], prompt_cache_key="another"))
    assert "cache_miss" not in stranger
    again = httpx.post(server.url + "/v1/responses", timeout=120, json={
        "input": "a text of another length, but longer than a block of the cache is, by far",
        "prompt_cache_key": "talk", "max_output_tokens": 2, "store": False})
    if again.status_code == 200:
        assert again.json()["usage"]["input_tokens_details"]["cache_miss"]["reason"] == "edited"


@pytest.mark.parametrize("fields", [
    {"cache_priority": "high", "cache_seconds": 60},
    {"cache_priority": "low"},
    {"prompt_cache_retention": "24h", "parent_cache_key": "talk"},
])
def test_hints_change_no_answer(server, fields):
    prompt = list(range(30, 90))
    plain = complete(server, prompt)
    assert complete(server, prompt, **fields)["choices"][0]["text"] == plain["choices"][0]["text"]


def test_kept_scores_are_those_that_are_computed(server):
    shared = list(range(20, 180))
    scored = {"echo": True, "logprobs": 2, "max_tokens": 0}
    complete(server, shared + [3] * 9, **scored)
    for last in (4, 5, 6):
        prompt = shared + [last] * 9
        kept = complete(server, prompt, **scored)
        alone = complete(server, prompt, cache_salt=f"only {last}", **scored)
        assert details(kept)["cached_tokens"] >= 159 and details(alone)["cached_tokens"] == 0
        assert kept["choices"] == alone["choices"]
    fewer = complete(server, shared + [3] * 9, echo=True, logprobs=1, max_tokens=0)
    assert details(fewer)["cached_tokens"] >= 159
    more = complete(server, shared + [3] * 9, echo=True, logprobs=5, max_tokens=0)
    assert details(more)["cached_tokens"] == 0
