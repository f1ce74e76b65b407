"""Beam search and the best of several answers, over the wire."""

import concurrent.futures

import httpx
import openai
import pytest

kPrompt = "The river ran past the old mill and"


def complete(server, **fields):
    body = {"model": "second", "prompt": kPrompt, "max_tokens": 12, **fields}
    return httpx.post(server.url + "/v1/completions", json=body)


def texts(answer):
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
    return [choice["text"] for choice in answer["choices"]]


def test_one_beam_is_greedy(server):
    greedy = complete(server, temperature=0).json()
    beam = complete(server, use_beam_search=True, temperature=0.9, top_p=0.5, seed=3).json()
    assert texts(beam) == texts(greedy)
    assert beam["usage"]["completion_tokens"] == greedy["usage"]["completion_tokens"]


def test_answers_are_the_same_alone_and_in_a_crowd(server):
    search = dict(use_beam_search=True, n=4, ignore_eos=True, length_penalty=0.5)
    alone = complete(server, **search).json()
    assert len(texts(alone)) == 4 and len(set(texts(alone))) > 1
    assert alone["usage"]["completion_tokens"] == 4 * 12
    assert all(choice["finish_reason"] == "length" for choice in alone["choices"])
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        crowd = [pool.submit(complete, server, **({**search} if i % 3 == 0 else dict(n=2, seed=i, max_tokens=40)))
                 for i in range(12)]
        answers = [each.result().json() for each in crowd]
    assert all(texts(answer) == texts(alone) for answer in answers[::3])
    server.wait_until_idle()


def test_a_wider_beam_is_no_worse_and_its_best_are_returned(server):
    four = complete(server, use_beam_search=True, n=4, ignore_eos=True).json()
    best = complete(server, use_beam_search=True, n=2, best_of=4, ignore_eos=True).json()
    assert texts(best) == texts(four)[:2]
    assert best["usage"]["completion_tokens"] == 2 * 12


def test_chat_and_two_prompts(server, client):
    answer = client.chat.completions.create(
        model="second", messages=[{"role": "user", "content": "Hello there"}], max_tokens=8, n=3,
        extra_body={"use_beam_search": True, "early_stopping": "never"})
    assert len(answer.choices) == 3
    each = [texts(complete(server, prompt=prompt, use_beam_search=True, n=2, ignore_eos=True).json())
            for prompt in ("one", "two and three")]
    both = complete(server, prompt=["one", "two and three"], use_beam_search=True, n=2, ignore_eos=True).json()
    assert texts(both) == each[0] + each[1]


@pytest.mark.parametrize("fields, param, message", [
    (dict(stream=True), "stream",
     "stream is true, but it must be false with use_beam_search, whose answers come at its end"),
    (dict(stop=["x"]), "stop", "stop is given, but it must be left out with use_beam_search, which ends at stop_token_ids only"),
    (dict(logprobs=2), "logprobs", "logprobs cannot be combined with beam search"),
    (dict(mirostat=2), "mirostat", "mirostat cannot be combined with beam search"),
    (dict(guided_regex="[a-z]+"), "use_beam_search",
     "a beam search cannot be held to a schema, a grammar or declared tools"),
    (dict(repetition_detection={"max_pattern_size": 4, "min_count": 3}), "repetition_detection",
     "repetition_detection cannot be combined with beam search"),
    (dict(early_stopping="soon"), "early_stopping", 'early_stopping is "soon", but it must be true, false or "never"'),
])
def test_what_does_not_go_together_is_named(server, fields, param, message):
    response = complete(server, use_beam_search=True, n=2, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert response.json()["error"]["message"].startswith(message)


def test_best_of_returns_the_most_likely(server, client):
    draws = dict(temperature=1.0, seed=11, ignore_eos=True)
    made = complete(server, n=6, logprobs=0, **draws).json()
    means = [sum(choice["logprobs"]["token_logprobs"]) / 12 for choice in made["choices"]]
    ranked = sorted(range(6), key=lambda i: -means[i])
    best = complete(server, n=2, best_of=6, **draws).json()
    assert texts(best) == [made["choices"][i]["text"] for i in ranked[:2]]
    assert best["choices"][0]["logprobs"] is None
    assert best["usage"]["completion_tokens"] == 6 * 12
    scored = complete(server, n=1, best_of=6, logprobs=1, **draws).json()
    assert scored["choices"][0]["logprobs"]["token_logprobs"] == made["choices"][ranked[0]]["logprobs"]["token_logprobs"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="second", prompt=kPrompt, n=2, best_of=6, stream=True)
    assert caught.value.param == "best_of"
