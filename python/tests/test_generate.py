"""What calls mean: prompts of every kind, structure, log-probabilities, streams, vectors, errors."""

import asyncio
import json
import math
import re
import warnings

import headrace
import pytest

kMessages = [{"role": "user", "content": "Hello"}]


def test_continues_texts_and_ids(llm):
    answer = llm.generate("abc def", max_tokens=6, temperature=0)
    assert isinstance(answer, headrace.Answer) and answer.text == answer.choices[0].text
    assert answer.usage.prompt_tokens == 7 and answer.usage.output_tokens == 6
    assert answer.choices[0].finish_reason == "length" and answer.fingerprint
    assert llm.generate(llm.tokenize("abc def"), max_tokens=6, temperature=0).text == answer.text


def test_answers_conversations(llm):
    answer = llm.generate(kMessages, max_tokens=5, temperature=0)
    rendered = llm.render(kMessages)
    assert rendered.text == "<s><user>Hello<assistant>"
    assert answer.usage.prompt_tokens == len(rendered.ids)
    assert llm.generate(list(rendered.ids), max_tokens=5, temperature=0).text == answer.text


def test_a_list_of_prompts_has_a_list_of_answers(llm):
    prompts = ["abc", [100, 101, 102], kMessages, "abc"]
    answers = llm.generate(prompts, max_tokens=4, temperature=0)
    assert [each.text for each in answers] == [llm.generate(p, max_tokens=4, temperature=0).text for p in prompts]
    assert llm.generate([], max_tokens=4) == []


def test_more_prompts_than_run_at_once(llm):
    prompts = [f"prompt {i}" for i in range(600)]
    answers = llm.generate(prompts, max_tokens=2, temperature=0)
    assert len(answers) == 600
    assert answers[599].text == llm.generate(prompts[599], max_tokens=2, temperature=0).text


def test_choices_and_seeds(llm):
    wanted = {"n": 3, "temperature": 1.5, "max_tokens": 12, "seed": 5, "ignore_eos": True}
    first, again = llm.generate("abc", **wanted), llm.generate("abc", **wanted)
    assert [each.text for each in first.choices] == [each.text for each in again.choices]
    assert len({each.text for each in first.choices}) == 3


def test_stop_texts(llm):
    text = llm.generate("abc", max_tokens=20, temperature=0, ignore_eos=True).text
    stop = next(c for c in text[2:] if c.isascii())
    choice = llm.generate("abc", max_tokens=20, temperature=0, ignore_eos=True, stop=stop).choices[0]
    assert choice.text == text.split(stop)[0] and choice.finish_reason == "stop"


def test_log_probabilities(llm):
    for prompt in ("abc", kMessages):
        choice = llm.generate(prompt, max_tokens=4, temperature=0, logprobs=2, ignore_eos=True).choices[0]
        assert len(choice.logprobs) == 4
        for score in choice.logprobs:
            assert len(score.top) in (1, 2)  # tokens that are no text look alike
            assert score.logprob == max(score.top.values()) < 0
    assert llm.generate("abc", max_tokens=1).choices[0].logprobs is None


def test_structure(llm):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
              "required": ["age"], "additionalProperties": False}
    shown = json.loads(llm.generate(kMessages, schema=schema, max_tokens=200, temperature=1, seed=1).text)
    assert 0 <= shown["age"] <= 150
    assert re.fullmatch("[ab]{5}", llm.generate("x", regex="[ab]{5}", max_tokens=20).text)
    assert llm.generate("x", choices=["left", "right"], max_tokens=20).text in ("left", "right")
    assert llm.generate("x", grammar='start: "yes" | "no"', max_tokens=20).text in ("yes", "no")

    class Model:  # as pydantic's
        @staticmethod
        def model_json_schema():
            return schema

    assert set(json.loads(llm.generate("x", schema=Model, max_tokens=200, seed=2).text)) == {"age"}


def test_tools(llm):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}}}
    wanted = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300, "seed": 3}
    choice = llm.generate(kMessages, **wanted).choices[0]
    assert choice.finish_reason == "tool_calls"
    call = choice.tool_calls[0]
    assert call.name == "weather" and json.loads(call.arguments)["city"] in ("Oslo", "Rome") and call.id
    pieces = list(llm.stream(kMessages, **wanted))
    assert "".join(part.arguments for piece in pieces for part in piece.tool_calls) == call.arguments


def test_streams_say_what_whole_answers_say(llm):
    wanted = {"max_tokens": 12, "temperature": 1, "seed": 4, "logprobs": 1, "ignore_eos": True}
    for prompt in ("abc", kMessages):
        pieces = list(llm.stream(prompt, **wanted))
        choice = llm.generate(prompt, **wanted).choices[0]
        assert "".join(piece.text for piece in pieces) == choice.text
        assert pieces[-1].finish_reason == choice.finish_reason == "length"
        assert all(piece.text or piece.finish_reason or piece.logprobs for piece in pieces)
        assert tuple(score for piece in pieces for score in piece.logprobs or ()) == choice.logprobs
    assert llm.stream("abc", **wanted).text() == llm.generate("abc", **wanted).text


def test_asyncio(llm):
    wanted = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}

    async def all_of_it():
        answers = await asyncio.gather(*(llm.agenerate(f"prompt {i}", **wanted) for i in range(20)))
        async with llm.astream("abc", **wanted) as stream:
            pieces = [piece.text async for piece in stream]
        return answers, "".join(pieces), await llm.astream(kMessages, **wanted).text()

    answers, text, chat = asyncio.run(all_of_it())
    assert [each.text for each in answers] == [each.text for each in llm.generate(
        [f"prompt {i}" for i in range(20)], **wanted)]
    assert text == llm.generate("abc", **wanted).text and chat == llm.generate(kMessages, **wanted).text


def test_scores_are_those_of_generating(llm):
    prompt = llm.tokenize("abcdef")
    choice = llm.generate(prompt, max_tokens=5, temperature=0, logprobs=3, echo=True, ignore_eos=True).choices[0]
    generated = [each.logprob for each in choice.logprobs]
    score = llm.score(prompt, top=3)
    assert score.ids == tuple(prompt) and score.logprobs[0] is None and len(score.top[1]) >= 3
    assert list(score.logprobs) == generated[:6]
    assert score.total == pytest.approx(sum(generated[1:6]))
    assert llm.score("abcdef").logprobs == score.logprobs
    assert [each.logprobs for each in llm.score(["abcdef", prompt])] == [score.logprobs] * 2


def test_vectors(llm):
    one, two = llm.embed(["abc", "something else"])
    assert len(one) == 64 and one != two
    assert llm.embed("abc") == one and llm.embed(llm.tokenize("abc")) == one
    assert math.isclose(sum(each * each for each in one), 1, rel_tol=1e-5)


def test_text_and_ids(llm):
    ids = llm.tokenize("héllo")
    assert llm.detokenize(ids) == "héllo"
    assert llm.context == 512 and llm.name == "tiny" and llm.adapters == []
    assert llm.special_tokens["eos_token"] == "</s>" and llm.is_healthy()


def test_errors_say_which_field(llm):
    with pytest.raises(headrace.Error, match="temperature") as found:
        llm.generate("abc", temperature=-1)
    assert (found.value.code, found.value.param) == ("invalid_argument", "temperature")
    with pytest.raises(headrace.Error) as found:
        list(llm.stream([{"role": "nobody", "content": "x"}]))
    assert found.value.param.startswith("messages")
    with pytest.raises(headrace.Error, match="512"):
        llm.generate("x" * 600)
    with pytest.raises(headrace.Error):
        asyncio.run(llm.agenerate("abc", top_p=7))
    with pytest.raises(headrace.Error) as found:
        llm.generate("abc", adapter="nobody")
    assert found.value.code == "not_found"
    with pytest.raises(headrace.Error):
        llm.generate(["fine", "x" * 600, "fine"], max_tokens=1)


def test_unknown_arguments(llm):
    with pytest.raises(TypeError, match="temprature"):
        llm.generate("abc", temprature=1)
    with pytest.raises(TypeError, match="stream()"):
        llm.generate("abc", fields={"stream": True})
    with pytest.warns(headrace.IgnoredFieldWarning, match="temprature"):
        llm.generate("abc", max_tokens=1, fields={"temprature": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        llm.generate("abc", max_tokens=1, fields={"typical_p": 1, "user": "me"})
