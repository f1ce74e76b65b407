"""Tools, thinking and schemas by the unmodified packages of Anthropic, Ollama and OpenAI, in each one's own dialect.

One model writes at random: what it says is held to what was asked for. The other says what its script says: it thinks,
calls a tool of its own accord, and answers behind the result.
"""

import json
from typing import Literal

import anthropic
import httpx
import jsonschema
import ollama
import pydantic
import pytest

import tiny_model

kParameters = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}, "coats": {"type": "integer",
               "minimum": 1, "maximum": 3}}, "required": ["colour", "coats"], "additionalProperties": False}
kEmpty = {"type": "object", "properties": {}, "additionalProperties": False}
kScript = tiny_model.Script({
    ">": ["<think>", "The wall is", " grey.", "</think>", "I paint.", "\n<tool_call>\n{\"name\": \"paint\", ",
          "\"arguments\": {\"colour\": \"green\", ", "\"coats\": 2}}", "\n</tool_call>"],
    "}": ["It is ", "green."],
    "]": ["Plain ", "text."]})
kArguments = {"colour": "green", "coats": 2}
kAsk = [{"role": "user", "content": "Paint the wall."}]
kClaudeTools = [{"name": "paint", "description": "Paints.", "input_schema": kParameters},
                {"name": "wait", "input_schema": kEmpty}]
kTools = [{"type": "function", "function": {"name": "paint", "description": "Paints.", "parameters": kParameters}},
          {"type": "function", "function": {"name": "wait", "description": "Waits.", "parameters": kEmpty}}]


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    """Both models: "noise" and "script"."""
    folder = tmp_path_factory.mktemp("models")
    template = tiny_model.kToolTemplate + "{# <think> </think> #}"
    noise = tiny_model.write(folder / "noise", template=template, context=2048)
    script = tiny_model.write(folder / "script", template=tiny_model.kScriptTemplate, context=2048, script=kScript)
    with serve(str(script), "--context", "2048", model=noise) as running:
        yield running


@pytest.fixture
def claude(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)

    def ask(stream=False, **change):
        arguments = {"model": "script", "max_tokens": 400, "messages": kAsk, **change}
        if not stream:
            return client.messages.create(**arguments)
        with client.messages.stream(**arguments) as events:
            return events.get_final_message()

    return ask


@pytest.fixture
def llama(server):
    client = ollama.Client(host=server.url)

    def ask(stream=False, **change):
        arguments = {"model": "script", "messages": kAsk, "options": {"num_predict": 400}, **change}
        if not stream:
            return client.chat(**arguments)
        chunks = list(client.chat(stream=True, **arguments))
        last = chunks[-1]
        for name in ("content", "thinking"):
            setattr(last.message, name, "".join(getattr(chunk.message, name) or "" for chunk in chunks))
        last.message.tool_calls = [call for chunk in chunks for call in chunk.message.tool_calls or []]
        return last

    return ask


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_thinks_calls_and_answers(claude, stream):
    first = claude(stream, tools=kClaudeTools)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    thinking, text, call = first.content
    assert thinking.thinking == "The wall is grey." and thinking.signature
    assert text.text.strip() == "I paint."
    assert (call.name, call.input) == ("paint", kArguments) and call.id
    assert first.stop_reason == "tool_use" and first.stop_sequence is None
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "done"}]}
    turns = [*kAsk, {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
             {"role": "user", "content": [result]}]
    second = claude(stream, tools=kClaudeTools, messages=turns)
    assert [block.text for block in second.content] == ["It is green."] and second.stop_reason == "end_turn"


def test_anthropic_streams_a_call_in_pieces(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    events = list(client.messages.create(model="script", max_tokens=400, messages=kAsk, tools=kClaudeTools, stream=True))
    starts = [event for event in events if event.type == "content_block_start"]
    assert [event.content_block.type for event in starts] == ["thinking", "text", "tool_use"]
    assert [event.index for event in starts] == [0, 1, 2]
    assert starts[2].content_block.input == {} and starts[2].content_block.name == "paint"
    deltas = [event for event in events if event.type == "content_block_delta"]
    assert [event.delta.type for event in deltas if event.index == 0][-1] == "signature_delta"
    pieces = [event.delta.partial_json for event in deltas if event.index == 2]
    assert len(pieces) > 1 and json.loads("".join(pieces)) == kArguments
    assert [event.delta.stop_reason for event in events if event.type == "message_delta"] == ["tool_use"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True},
                                    {"type": "tool", "name": "paint"}])
def test_anthropic_forced_calls_hold_to_their_schema(claude, choice, stream):
    answer = claude(stream, model="noise", tools=kClaudeTools[:1], tool_choice=choice,
                    thinking={"type": "disabled"}, extra_body={"temperature": 1.5})
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and calls
    for call in calls:
        assert call.name == "paint"
        jsonschema.validate(call.input, kParameters)


def test_anthropic_choice_none_calls_nothing(claude):
    answer = claude(tools=kClaudeTools, tool_choice={"type": "none"})
    assert [block.text for block in answer.content] == ["Plain text."]


def test_anthropic_bounds_thinking(claude):
    def thought(**thinking):
        answer = claude(tools=kClaudeTools, thinking=thinking)
        return [block.thinking for block in answer.content if block.type == "thinking"], answer

    assert thought(type="enabled", budget_tokens=100)[0] == ["The wall is grey."]
    assert thought(type="enabled", budget_tokens=100, display="omitted")[0] == [""]
    short, _ = thought(type="enabled", budget_tokens=1)
    assert short == ["The wall is"]
    none, answer = thought(type="disabled")
    assert none == [] and answer.content


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_answers_hold_to_a_schema(claude, stream):
    form = {"format": {"type": "json_schema", "schema": kParameters}}
    answer = claude(stream, model="noise", output_config=form, thinking={"type": "disabled"})
    assert [block.type for block in answer.content] == ["text"]
    jsonschema.validate(json.loads(answer.content[0].text), kParameters)
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude(output_config={"format": {"type": "json_schema", "schema": {"type": "array", "uniqueItems": True}}})
    message = caught.value.body["error"]["message"]
    assert "output_config.format.schema" in message and "uniqueItems" in message


def test_anthropic_parses_into_a_class(server):
    class Wall(pydantic.BaseModel):
        coats: int
        colour: Literal["red", "green"]

    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    parsed = client.messages.parse(model="noise", max_tokens=400, messages=kAsk, output_format=Wall,
                                   thinking={"type": "disabled"})
    assert parsed.parsed_output.colour in ("red", "green")


@pytest.mark.parametrize("stream", [False, True])
def test_ollama_thinks_calls_and_answers(llama, stream):
    first = llama(stream, tools=kTools)
    assert first.message.thinking == "The wall is grey." and first.message.content.strip() == "I paint."
    (call,) = first.message.tool_calls
    assert call.function.name == "paint" and call.function.arguments == kArguments
    assert first.done and first.done_reason == "stop"
    turns = [*kAsk, first.message, {"role": "tool", "tool_name": "paint", "content": "done"}]
    second = llama(stream, tools=kTools, messages=turns)
    assert second.message.content == "It is green." and not second.message.tool_calls


@pytest.mark.parametrize("stream", [False, True])
def test_ollama_answers_hold_to_a_schema(llama, stream):
    for form in (kParameters, "json"):
        answer = llama(stream, model="noise", format=form, think=False, options={"num_predict": 400, "seed": 4})
        if answer.done_reason == "stop":
            jsonschema.validate(json.loads(answer.message.content), kParameters if form == kParameters else {})
        assert answer.done_reason == "stop" or form == "json"
    with pytest.raises(ollama.ResponseError) as caught:
        llama(format={"type": "array", "uniqueItems": True})
    assert caught.value.status_code == 400 and "uniqueItems" in caught.value.error


def test_ollama_switches_thinking(llama):
    assert llama(think=True, tools=kTools).message.thinking == "The wall is grey."
    assert not llama(think=False, tools=kTools).message.thinking


def test_ollama_makes_tools_of_functions(server):
    def paint(colour: str, coats: int) -> str:
        """Paints.

        Args:
          colour: of the wall
          coats: how many
        """
        return f"{colour} {coats}"

    answer = ollama.Client(host=server.url).chat(model="script", messages=kAsk, tools=[paint])
    (call,) = answer.message.tool_calls
    assert paint(**call.function.arguments) == "green 2"


@pytest.mark.parametrize("stream", [False, True])
def test_openai_calls_of_its_own_accord(server, stream):
    chat = server.client().chat.completions
    messages = list(kAsk)
    if stream:
        with chat.stream(model="script", messages=messages, tools=kTools) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = chat.create(model="script", messages=messages, tools=kTools).choices[0]
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content.strip() == "I paint."
    assert choice.message.reasoning_content == "The wall is grey."
    assert call.function.name == "paint" and json.loads(call.function.arguments) == kArguments
    messages += [choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "ok"}]
    second = chat.create(model="script", messages=messages, tools=kTools).choices[0]
    assert second.message.content == "It is green." and second.finish_reason == "stop"


def test_every_dialect_counts_the_same_prompt(server, claude):
    """The same conversation with the same tools is the same prompt, however it is said."""
    chat = server.client().chat.completions.create(model="script", messages=kAsk, tools=kTools).usage.prompt_tokens
    claude_tools = [{"name": tool["function"]["name"], "description": tool["function"]["description"],
                     "input_schema": tool["function"]["parameters"]} for tool in kTools]
    usage = claude(tools=claude_tools).usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat
    answer = httpx.post(server.url + "/api/chat", json={"model": "script", "messages": kAsk, "tools": kTools,
                                                        "stream": False}).json()
    assert answer["prompt_eval_count"] == chat
    flat = [{"type": "function", **tool["function"]} for tool in kTools]
    answer = httpx.post(server.url + "/v1/responses", json={"model": "script", "input": "Paint the wall.",
                                                            "tools": flat}).json()
    assert answer["usage"]["input_tokens"] == chat
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call"]
