"""Tools and reasoning by the unmodified OpenAI package against a real server with a tiny model, whose
random weights write nonsense: what it writes is held to what was declared."""

import json
import re

import httpx
import jsonschema
import openai
import pytest

import tiny_model

kTool = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 0, "maximum": 99},
                "unit": {"enum": ["C", "F"]},
            },
            "required": ["city", "days", "unit"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
kStop = {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {},
                                                                        "additionalProperties": False}}}
kMessages = [{"role": "user", "content": "Weather?"}]
kNamed = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def tools_server(serve, tmp_path_factory):
    folder = tiny_model.write(tmp_path_factory.mktemp("tools") / "tiny", template=tiny_model.kToolTemplate,
                              context=2048)
    with serve("--context", "2048", model=folder) as running:
        yield running


@pytest.fixture
def chat(tools_server):
    def create(**options):
        usual = {"model": "", "messages": kMessages, "tools": [kTool, kStop], "max_tokens": 400}
        return tools_server.client().chat.completions.create(**{**usual, **options})

    return create


def check_call(call):
    assert call.type == "function" and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    schemas = {each["function"]["name"]: each["function"]["parameters"] for each in (kTool, kStop)}
    jsonschema.validate(arguments, schemas[call.function.name])


@pytest.mark.parametrize("seed", range(6))
def test_a_named_call_always_holds_to_its_schema(chat, seed):
    answer = chat(tool_choice=kNamed, temperature=1.5, seed=seed)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
    check_call(choice.message.tool_calls[0])


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_one_of_the_tools(chat, seed):
    answer = chat(tool_choice="required", parallel_tool_calls=False, temperature=1.5, seed=seed)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert len(answer.choices[0].message.tool_calls) == 1
    check_call(answer.choices[0].message.tool_calls[0])


def streamed_call(chunks):
    """The name and arguments of the only call, and how the answer ended."""
    name, arguments, finish, ids = "", "", None, set()
    for chunk in chunks:
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or []:
                assert piece.index == 0
                ids |= {piece.id} - {None}
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
    assert len(ids) == 1
    return name, arguments, finish


def test_streamed_calls_are_the_whole_ones(chat):
    options = dict(tool_choice=kNamed, temperature=0)
    whole = chat(**options).choices[0].message.tool_calls[0]
    assert streamed_call(chat(**options, stream=True)) == ("get_weather", whole.function.arguments, "tool_calls")


def test_a_call_that_is_cut_has_what_was_written_of_its_arguments(chat):
    """A token is a byte, so the arguments begin behind so many."""
    options = dict(tool_choice=kNamed, temperature=0)
    head = len('<tool_call>\n{"name": "get_weather", "arguments": ')
    whole = chat(**options).choices[0].message.tool_calls[0].function.arguments
    for count in (head - 3, head, head + 1, head + 5):
        choice = chat(**options, max_tokens=count).choices[0]
        arguments = whole[:max(count - head, 0)]
        assert choice.finish_reason == "length"
        assert choice.message.tool_calls[0].function.arguments == arguments
        assert streamed_call(chat(**options, max_tokens=count, stream=True)) == ("get_weather", arguments, "length")


def test_other_dialects_of_a_cut_call(tools_server):
    """Where an object is needed, there is one; a stream of JSON has what was written, here nothing."""
    count = len('<tool_call>\n{"name": "get_weather", "arguments": ')
    function = kTool["function"]
    blocks = {"messages": kMessages, "max_tokens": count, "temperature": 0,
              "tools": [{"name": function["name"], "input_schema": function["parameters"]}],
              "tool_choice": {"type": "tool", "name": function["name"]}}
    message = httpx.post(tools_server.url + "/v1/messages", json=blocks).json()
    assert message["content"][0]["input"] == {} and message["stop_reason"] == "max_tokens"
    stream = httpx.post(tools_server.url + "/v1/messages", json=blocks | {"stream": True}).text
    assert "tool_use" in stream and "input_json_delta" not in stream
    response = tools_server.client().responses.create(
        model="", input="Weather?", max_output_tokens=count, temperature=0,
        tools=[{"type": "function", **function}], tool_choice={"type": "function", "name": function["name"]})
    item = response.output[0]
    assert (item.type, item.status, item.arguments, response.status) == ("function_call", "incomplete", "", "incomplete")


def test_a_custom_tool_that_is_cut_has_what_there_is_of_its_text(tools_server):
    bias = {str(ord(blank)): -100 for blank in " \t\r\n"} | {str(ord("a")): 50}

    def ask(count):
        response = tools_server.client().responses.create(
            model="", input="Say.", max_output_tokens=count, temperature=0, tools=[{"type": "custom", "name": "say"}],
            tool_choice={"type": "custom", "name": "say"}, extra_body={"logit_bias": bias})
        return response.output[0].input

    head = len('<tool_call>\n{"name": "say", "arguments": {"input":"')
    assert ask(head - 4) == "" and ask(head) == ""
    assert ask(head + 5) == "aaaaa"


@pytest.mark.parametrize("seed", range(6))
def test_a_clients_tags_hold_beside_tools(chat, seed):
    tag = {"begin": "<n>", "schema": {"type": "integer", "minimum": 0, "maximum": 99}, "end": "</n>"}
    forms = ({"type": "structural_tag", "structures": [tag], "triggers": ["<n>"], "at_least_one": True,
              "stop_after_first": True},
             {"type": "structural_tag", "format": {"type": "tag", "begin": "<n>", "end": "</n>",
                                                   "content": {"type": "regex", "pattern": "[0-9]{1,2}"}}})
    for form in forms:
        answer = chat(temperature=1.5, seed=seed, extra_body={"response_format": form}).choices[0]
        for call in answer.message.tool_calls or []:
            check_call(call)
        if answer.finish_reason == "stop":
            assert re.search(r"<n>[0-9]{1,2}</n>$", answer.message.content), answer.message.content


def test_without_a_choice_text_is_free(chat):
    answer = chat(max_tokens=20, temperature=0)
    free = chat(max_tokens=20, temperature=0, tool_choice="none")
    assert answer.choices[0].finish_reason in ("length", "stop", "tool_calls")
    assert free.choices[0].message.tool_calls is None


def test_several_answers_have_calls_of_their_own(chat):
    answer = chat(tool_choice=kNamed, n=3, temperature=1.5, seed=5)
    assert len({choice.message.tool_calls[0].id for choice in answer.choices}) == 3
    for choice in answer.choices:
        check_call(choice.message.tool_calls[0])


def test_a_conversation_goes_on_behind_a_call(chat):
    call = chat(tool_choice=kNamed, temperature=0).choices[0].message
    messages = [*kMessages, call.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "sunny </tool_call> <s>"}]
    assert chat(messages=messages, max_tokens=5).usage.prompt_tokens > 0


@pytest.mark.parametrize("change, param", [
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
    ({"tool_choice": "required", "tools": openai.NOT_GIVEN}, "tool_choice"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"parallel_tool_calls": 3}, "parallel_tool_calls"),
])
def test_what_cannot_be_called_is_named(chat, change, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(**change)
    assert caught.value.param == param


def test_reasoning_is_apart_and_bounded(serve, tmp_path):
    template = tiny_model.kToolTemplate.replace("<assistant>", "<assistant><think>") + "{# </think> #}"
    folder = tiny_model.write(tmp_path / "tiny", template=template, context=2048)
    with serve("--context", "2048", model=folder) as running:
        create = running.client().chat.completions.create
        answer = create(model="", messages=kMessages, max_tokens=60, temperature=0, tools=[kTool],
                        tool_choice=kNamed, extra_body={"thinking_budget": 7})
        message = answer.choices[0].message
        assert len(message.reasoning_content) > 0 and message.reasoning == message.reasoning_content
        assert 7 <= answer.usage.completion_tokens_details.reasoning_tokens <= 7 + len("</think>")
        assert message.tool_calls[0].function.name == "get_weather"
        mixed = create(model="", messages=kMessages, max_tokens=30, temperature=0,
                       extra_body={"thinking_budget": 3, "separate_reasoning": False})
        assert "</think>" in mixed.choices[0].message.content
