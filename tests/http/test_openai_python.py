"""The OpenAI Python SDK, unmodified, against a real server."""

import concurrent.futures
import math
import time

import openai
import pytest

kMessages = [{"role": "user", "content": "Hello there"}]


def streamed(stream):
    """Text, finish reasons and usage of a stream of either kind, and how many chunks had choices."""
    text, finish, usage, chunks = "", [], None, 0
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            chunks += 1
            piece = choice.delta.content if hasattr(choice, "delta") else choice.text
            text += piece or ""
            if choice.finish_reason:
                finish.append(choice.finish_reason)
    return text, finish, usage, chunks


def test_models(server, client):
    models = client.models.list().data
    assert [model.id for model in models][1:] == ["gpt-4o-mini", "second"]
    assert models[0].max_model_len == 512
    assert client.models.retrieve("second").root == models[0].id
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("absent")
    assert caught.value.param == "model"


def test_chat(client):
    answer = client.chat.completions.create(model="second", messages=kMessages, max_tokens=8, temperature=0)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and isinstance(choice.message.content, str)
    assert choice.finish_reason in ("length", "stop")
    assert answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.id.startswith("chatcmpl-") and answer.system_fingerprint
    assert abs(answer.created - time.time()) < 100


def test_chat_streams_the_same_text(client):
    arguments = dict(model="second", messages=kMessages, max_tokens=40, temperature=0)
    whole = client.chat.completions.create(**arguments)
    text, finish, usage, _ = streamed(
        client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    assert text == whole.choices[0].message.content
    assert finish == [whole.choices[0].finish_reason]
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)


def test_the_stream_helper_assembles_choices_with_log_probs(client):
    ends = dict(logit_bias={"1": 100}, extra_body={"min_tokens": 5})  # the helper refuses an answer that is cut
    arguments = dict(model="second", messages=kMessages, temperature=1.5, seed=3, n=3, logprobs=True, top_logprobs=1,
                     **ends)
    whole = client.chat.completions.create(**arguments)
    with client.chat.completions.stream(**arguments) as stream:
        for _ in stream:
            pass
        assembled = stream.get_final_completion()

    def parts(answer):
        return [(each.index, each.message.content, each.finish_reason, [token.token for token in each.logprobs.content])
                for each in answer.choices]

    assert parts(assembled) == parts(whole)


def test_system_and_parts(client):
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]}]
    joined = [messages[0], {"role": "user", "content": "Hello\nthere"}]
    answers = [client.chat.completions.create(model="second", messages=each, max_tokens=10, temperature=0)
               for each in (messages, joined)]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    assert answers[0].usage.prompt_tokens == answers[1].usage.prompt_tokens


def test_completions_take_every_form_of_prompt(client):
    ids = [65, 66, 67]
    for prompt, choices in [("abc", 1), (["abc", "d"], 2), (ids, 1), ([ids, [68]], 2)]:
        answer = client.completions.create(model="second", prompt=prompt, max_tokens=4, temperature=0)
        assert [choice.index for choice in answer.choices] == list(range(choices))
    assert client.completions.create(model="second", prompt=ids, max_tokens=1).usage.prompt_tokens == 3


def test_completion_streams_one_chunk_per_token(client):
    arguments = dict(model="second", prompt="abc", max_tokens=30, temperature=0, extra_body={"ignore_eos": True})
    whole = client.completions.create(**arguments)
    text, finish, _, chunks = streamed(client.completions.create(**arguments, stream=True))
    assert text == whole.choices[0].text
    assert finish == ["length"] and whole.usage.completion_tokens == 30
    assert chunks <= 31


def test_continuous_usage(client):
    counts = []
    for chunk in client.completions.create(
            model="second", prompt="abc", max_tokens=10, temperature=0, stream=True, extra_body={"ignore_eos": True},
            stream_options={"include_usage": True, "continuous_usage_stats": True}):
        counts.append(chunk.usage.completion_tokens)
    assert counts == sorted(counts) and counts[-1] == 10 and len(counts) >= 2


def test_seed_and_choices(client):
    def texts(seed, n=1):
        answer = client.chat.completions.create(model="second", messages=kMessages, max_tokens=20, temperature=1.5,
                                                seed=seed, n=n)
        return [choice.message.content for choice in answer.choices]

    assert texts(5) == texts(5)
    assert texts(5) != texts(500)
    several = texts(5, n=3)
    assert several[:1] == texts(5) and len({*several, *texts(6), *texts(7)}) == 5  # no answer is of another seed


def test_logprobs_of_chat(client):
    answer = client.chat.completions.create(model="second", messages=kMessages, max_tokens=6, temperature=0,
                                            logprobs=True, top_logprobs=5)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 5
        values = [each.logprob for each in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert token.logprob == values[0] and token.bytes == token.top_logprobs[0].bytes
        assert sum(math.exp(value) for value in values) <= 1.0001


def test_scored_prompt_equals_generation(client):
    """What evaluation harnesses rely on: scores of a text are those of its generation, to the last bit."""
    prompt = list(b"The quick brown")
    made = client.completions.create(model="second", prompt=prompt, max_tokens=12, temperature=0, logprobs=1,
                                     extra_body={"ignore_eos": True}).choices[0].logprobs
    # Tokens that are no whole characters are shown by their bytes.
    tokens = [ord(t.encode().decode("unicode_escape")[6:]) if t.startswith("bytes:") else t.encode()[0]
              for t in made.tokens]
    scored = client.completions.create(model="second", prompt=[prompt + tokens], max_tokens=1, temperature=0,
                                       logprobs=1, seed=1234, echo=True).choices[0].logprobs
    assert len(scored.tokens) == len(prompt) + len(tokens) + 1
    assert scored.token_logprobs[0] is None and scored.top_logprobs[0] is None
    begin, end = len(prompt), len(prompt) + len(tokens)
    assert scored.tokens[begin:end] == made.tokens
    assert scored.token_logprobs[begin:end] == made.token_logprobs
    for token, logprob, top in zip(scored.tokens[begin:end], scored.token_logprobs[begin:end],
                                   scored.top_logprobs[begin:end], strict=True):
        assert max(top.values()) == logprob and top[token] == logprob
    for token, logprob, top in zip(scored.tokens[1:], scored.token_logprobs[1:], scored.top_logprobs[1:], strict=True):
        assert top[token] == logprob and max(top.values()) >= logprob


def test_echo_without_tokens(client):
    answer = client.completions.create(model="second", prompt="score me", max_tokens=0, echo=True, logprobs=0)
    assert answer.choices[0].text == "score me"
    assert len(answer.choices[0].logprobs.tokens) == 8
    assert answer.usage.completion_tokens == 0


def test_stop_strings(client):
    arguments = dict(model="second", prompt="abc", max_tokens=60, temperature=0, extra_body={"ignore_eos": True})
    text = client.completions.create(**arguments).choices[0].text
    stop = text[10:13]
    expected = text[: text.index(stop)]
    whole = client.completions.create(**arguments, stop=["never there", stop])
    assert whole.choices[0].text == expected and whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens < 60
    streamed_text, finish, _, _ = streamed(client.completions.create(**arguments, stop=stop, stream=True))
    assert streamed_text == expected and finish == ["stop"]


def test_extra_parameters_reach_the_sampler(client):
    def text(**extra):
        return client.completions.create(model="second", prompt="abc", max_tokens=16, temperature=1.0, seed=3,
                                         extra_body={"ignore_eos": True, **extra}).choices[0].text

    greedy = client.completions.create(model="second", prompt="abc", max_tokens=16, temperature=0,
                                       extra_body={"ignore_eos": True}).choices[0].text
    assert text(top_k=1) == greedy and text(min_p=1.0) == greedy
    assert text() != greedy
    forced = client.completions.create(model="second", prompt="abc", max_tokens=4, temperature=0,
                                       logit_bias={"90": 100}).choices[0].text
    assert forced == "ZZZZ"
    stopped = client.completions.create(model="second", prompt="abc", max_tokens=9, temperature=0,
                                        logit_bias={"90": 100}, extra_body={"stop_token_ids": [90]})
    assert stopped.choices[0].text == "" and stopped.choices[0].finish_reason == "stop"


def test_errors_are_the_right_exceptions(client):
    chat = client.chat.completions.create
    cases = [
        (dict(temperature=-1), "temperature", "temperature is -1, but it must be a number from 0 to 100"),
        (dict(n=0), "n", "n is 0, but it must be a whole number from 1 to 16"),
        (dict(messages=[]), "messages", "messages is empty, but it must be a list of at least one message"),
        (dict(tool_choice="required"), "tool_choice",
         'tool_choice is "required", but it must be "auto" or "none" without tools'),
        (dict(extra_body={"top_k": 1.5}), "top_k",
         "top_k is 1.5, but it must be a whole number from -1 to 2147483647"),
    ]
    for change, param, message in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            chat(**{"model": "second", "messages": kMessages, **change})
        assert caught.value.param == param
        assert caught.value.body["message"] == message
        assert caught.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as caught:
        chat(model="absent", messages=kMessages)
    assert caught.value.body["message"].startswith('the model "absent" does not exist here')
    with pytest.raises(openai.BadRequestError) as caught:
        chat(model="second", messages=[{"role": "user", "content": "x" * 600}])
    assert "maximum context length is 512 tokens" in caught.value.body["message"]


def test_a_full_queue_is_a_rate_limit(serve):
    with serve("--context", "512", "--max-sequences", "1", "--max-waiting", "1") as server:
        client = server.client()

        def ask(_):
            try:
                client.completions.create(model="", prompt="abc", max_tokens=400, extra_body={"ignore_eos": True})
                return "answered"
            except openai.RateLimitError as error:
                assert error.response.headers["retry-after"] == "1"
                return "refused"

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            results = list(pool.map(ask, range(12)))
        assert "answered" in results and "refused" in results
        server.wait_until_idle()
        assert ask(0) == "answered"


def test_concurrent_answers_equal_lonely_ones(client):
    def ask(i):
        return client.completions.create(model="second", prompt=f"request {i}: ", max_tokens=24, temperature=0.8,
                                         seed=i, extra_body={"ignore_eos": True}).choices[0].text

    alone = [ask(i) for i in range(12)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == alone


def test_request_id(client):
    response = client.chat.completions.with_raw_response.create(
        model="second", messages=kMessages, max_tokens=1, extra_headers={"x-request-id": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"


def test_async_client(server):
    import asyncio

    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            async def one(i):
                stream = await client.chat.completions.create(model="second", messages=kMessages, max_tokens=10 + i,
                                                              temperature=0, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(*[one(i) for i in range(6)])

    texts = asyncio.run(run())
    for short, longer in zip(texts, texts[1:]):
        assert longer.startswith(short[:-1])
