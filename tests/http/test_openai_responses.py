"""The Responses API by the OpenAI Python SDK, unmodified, against a real server."""

import json

import httpx
import openai
import pytest

kInput = "Hello there"


def ask(client, **arguments):
    return client.responses.create(**{"model": "second", "input": kInput, "max_output_tokens": 12, "temperature": 0,
                                      **arguments})


def test_a_text_in_a_text_out(client):
    answer = ask(client, instructions="Be brief.", metadata={"k": "v"})
    assert answer.object == "response" and answer.id.startswith("resp_")
    assert answer.status in ("completed", "incomplete")
    assert answer.output[0].type == "message" and answer.output[0].role == "assistant"
    assert answer.output_text == answer.output[0].content[0].text
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.output_tokens <= 12
    assert answer.instructions == "Be brief." and answer.metadata == {"k": "v"}
    assert answer.parallel_tool_calls is True and answer.tool_choice == "auto" and answer.tools == []


def test_the_conversation_is_that_of_chat(client):
    """The same prompt, so the same answer."""
    chat = client.chat.completions.create(
        model="second", max_tokens=12, temperature=0,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": kInput}])
    answer = ask(client, instructions="Be brief.")
    assert answer.output_text == chat.choices[0].message.content
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    items = [{"role": "system", "content": "Be brief."},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": kInput}]}]
    assert ask(client, input=items).output_text == answer.output_text


def test_length_ends_as_incomplete(client):
    answer = ask(client, max_output_tokens=3, extra_body={"ignore_eos": True})
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens == 3


def test_a_stream_is_the_whole_answer(client):
    whole = ask(client)
    events = list(ask(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == ["response.created", "response.in_progress",
                                                    "response.output_item.added", "response.content_part.added"]
    assert events[-1].type in ("response.completed", "response.incomplete")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    done = [event for event in events if event.type == "response.output_text.done"]
    assert [event.text for event in done] == [text]
    assert events[-1].response.usage == whole.usage or events[-1].response.usage.input_tokens == whole.usage.input_tokens


def test_the_stream_helper_assembles_the_answer(client):
    stop = ask(client, max_output_tokens=40, extra_body={"ignore_eos": True}).output_text[5:8]
    arguments = dict(model="second", input=kInput, max_output_tokens=40, temperature=0,
                     extra_body={"ignore_eos": True, "stop": stop})
    with client.responses.stream(**arguments) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert final.status == "completed"
    if snapshots:
        assert final.output_text == snapshots[-1]
    assert final.output_text == client.responses.create(**arguments).output_text


def test_kept_responses(client):
    first = ask(client)
    again = client.responses.retrieve(first.id)
    assert again.output_text == first.output_text and again.usage == first.usage
    items = client.responses.input_items.list(first.id)
    assert [item.content[0].text for item in items.data] == [kInput]
    second = ask(client, input="and more", previous_response_id=first.id)
    replayed = ask(client, input=[{"role": "user", "content": kInput}, *first.to_dict()["output"],
                                  {"role": "user", "content": "and more"}], store=False)
    assert second.output_text == replayed.output_text
    assert second.usage.input_tokens == replayed.usage.input_tokens > first.usage.input_tokens
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, previous_response_id=first.id)
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(second.id)


def test_what_is_not_stored_is_gone(client):
    answer = ask(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_log_probs(client):
    answer = ask(client, include=["message.output_text.logprobs"], top_logprobs=3)
    logprobs = answer.output[0].content[0].logprobs
    assert len(logprobs) == answer.usage.output_tokens
    assert all(each.logprob == each.top_logprobs[0].logprob and len(each.top_logprobs) == 3 for each in logprobs)
    plain = ask(client)
    assert plain.output_text == answer.output_text and plain.output[0].content[0].logprobs == []


@pytest.mark.parametrize("bias, options", [
    ({"10": 50, "98": 50}, {"temperature": 1.5}),
    ({"10": 100}, {"temperature": 0}),
    ({"98": 100}, {"temperature": 0, "stop": "bb"}),
])
def test_log_probs_of_a_stream_are_those_of_the_whole(client, bias, options):
    """One for each token, blanks at the beginning and what a stop string cuts off included."""
    asked = dict(include=["message.output_text.logprobs"], max_output_tokens=5, temperature=options["temperature"],
                 extra_body={"logit_bias": bias, "seed": 2, "ignore_eos": True, "stop": options.get("stop")})

    def shown(logprobs):
        return [(each.token, each.logprob) for each in logprobs]

    answer = ask(client, **asked)
    whole = shown(answer.output[0].content[0].logprobs)
    assert len(whole) == answer.usage.output_tokens > 1
    events = list(ask(client, **asked, stream=True))
    deltas = [shown(event.logprobs) for event in events if event.type == "response.output_text.delta"]
    done = [shown(event.logprobs) for event in events if event.type == "response.output_text.done"]
    assert sum(deltas, []) == whole and done == [whole]
    assert shown(events[-1].response.output[0].content[0].logprobs) == whole


def test_errors_name_their_field(client):
    cases = [
        (dict(input=[]), "input"), (dict(temperature=-1), "temperature"), (dict(truncation="auto"), "truncation"),
        (dict(background=True), "background"), (dict(max_output_tokens=0), "max_output_tokens"),
        (dict(input=[{"type": "item_reference", "id": "msg_0_0"}]), "input[0].id"),
        (dict(tools=[{"type": "zebra"}]), "tools[0].type"),
        (dict(input=[{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]),
         "input[0].content[0].type"),
        (dict(input="x" * 4000), "input"),
    ]
    for arguments, param in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, **arguments)
        assert caught.value.param == param, caught.value


def test_a_request_as_codex_sends_it(server):
    """Stateless: the whole conversation each time, custom and hosted tools, reasoning replayed."""
    body = {
        "model": "second", "instructions": "You are a coding agent.", "stream": True, "store": False,
        "parallel_tool_calls": True, "tool_choice": "auto", "prompt_cache_key": "0199-a", "max_output_tokens": 8,
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"},
        "tools": [{"type": "web_search"}],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "permissions"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list files"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "opaque"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a.txt"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "thanks"}]},
        ],
    }
    events = []
    with httpx.stream("POST", server.url + "/v1/responses", json=body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["x-headrace-ignored"] == "tools[].web_search"
        for line in response.iter_lines():
            if line.startswith("event: "):
                events.append(line[7:])
            elif line.startswith("data: "):
                assert json.loads(line[6:])["type"] == events[-1]
    assert events[0] == "response.created" and events[-1] in ("response.completed", "response.incomplete")


def test_tokens_are_counted_before_they_are_computed(client):
    body = dict(model="second", input=kInput, instructions="Be brief.")
    counted = client.responses.input_tokens.count(**body)
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == ask(client, **body).usage.input_tokens
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.input_tokens.count(model="second", input=[])
    assert caught.value.param == "input"


def test_render_shows_the_prompt(server):
    def render(body):
        answer = httpx.post(server.url + "/render", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["prompts"]

    chat = render({"messages": [{"role": "user", "content": "Hi"}]})
    assert len(chat) == 1 and chat[0]["text"].endswith("<user>Hi\n<assistant>")
    assert chat[0]["count"] == len(chat[0]["tokens"])
    assert render({"input": "Hi"}) == chat
    texts = render({"prompt": ["ab", "c"]})
    assert [each["tokens"] for each in texts] == [[97, 98], [99]]
    refused = httpx.post(server.url + "/render", json={"messages": []})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "messages"
