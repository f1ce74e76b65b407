"""The OpenAI SDK's helpers, and the Agents SDK on both of its models."""

import asyncio
import enum
import json

import agents
import openai
import pydantic
import pytest


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Answer(pydantic.BaseModel):
    colour: Colour
    sure: bool


class Pair(pydantic.BaseModel):
    first: Answer
    second: Answer | None


kTool = {"name": "paint", "description": "Paints the wall.", "strict": True,
         "parameters": {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "green"]}},
                        "required": ["colour"], "additionalProperties": False}}
kMessages = [{"role": "user", "content": "Which colour?"}]


@pytest.fixture
def client(base_url):
    return openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)


def test_chat_parse(client):
    for kind in (Answer, Pair):
        parsed = client.chat.completions.parse(model="tiny", messages=kMessages, max_tokens=1500, response_format=kind)
        assert isinstance(parsed.choices[0].message.parsed, kind)


def test_chat_stream_helper_parses(client):
    with client.chat.completions.stream(model="tiny", messages=kMessages, max_tokens=1500,
                                        response_format=Answer) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Answer)


@pytest.mark.parametrize("stream", [False, True])
def test_chat_calls_a_tool(client, stream):
    arguments = dict(model="tiny", messages=kMessages, max_tokens=1500, tool_choice="required",
                     tools=[{"type": "function", "function": kTool}])
    if stream:
        with client.chat.completions.stream(**arguments) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**arguments).choices[0]
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls:
        assert call.id and call.function.name == "paint"
        assert json.loads(call.function.arguments)["colour"] in ("red", "green")


def test_responses_parse(client):
    parsed = client.responses.parse(model="tiny", input="Which colour?", max_output_tokens=1500, text_format=Answer)
    assert isinstance(parsed.output_parsed, Answer)


@pytest.mark.parametrize("stream", [False, True])
def test_responses_call_a_tool_and_take_its_output(client, stream):
    arguments = dict(model="tiny", input="Which colour?", max_output_tokens=1500, tool_choice="required",
                     parallel_tool_calls=False, tools=[{"type": "function", **kTool}])
    if stream:
        with client.responses.stream(**arguments) as events:
            answer = events.get_final_response()
    else:
        answer = client.responses.create(**arguments)
    calls = [item for item in answer.output if item.type == "function_call"]
    assert len(calls) == 1 and calls[0].name == "paint"
    assert json.loads(calls[0].arguments)["colour"] in ("red", "green")
    output = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "done"}
    second = client.responses.create(model="tiny", input=[output], previous_response_id=answer.id, max_output_tokens=5)
    assert second.output[-1].type == "message"


def test_responses_call_a_custom_tool(client):
    answer = client.responses.create(model="tiny", input="Patch it.", max_output_tokens=400, tool_choice="required",
                                     parallel_tool_calls=False, tools=[{"type": "custom", "name": "apply_patch"}])
    assert answer.status == "incomplete" or answer.output[-1].type == "custom_tool_call"


@pytest.fixture
def agents_client(base_url):
    agents.set_tracing_disabled(True)
    return openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)


@pytest.mark.parametrize("kind", [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
def test_agents_answer_in_a_form(agents_client, kind):
    agent = agents.Agent(name="painter", instructions="Be brief.", output_type=Answer,
                         model=kind(model="tiny", openai_client=agents_client),
                         model_settings=agents.ModelSettings(max_tokens=1500))
    assert isinstance(agents.Runner.run_sync(agent, "Which colour?").final_output, Answer)


@pytest.mark.parametrize("kind", [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
def test_agents_call_tools(agents_client, kind):
    painted = []

    @agents.function_tool
    def paint(colour: Colour) -> str:
        """Paints the wall."""
        painted.append(colour)
        return "done"

    agent = agents.Agent(name="painter", instructions="Be brief.", tools=[paint],
                         model=kind(model="tiny", openai_client=agents_client),
                         tool_use_behavior="stop_on_first_tool",
                         model_settings=agents.ModelSettings(max_tokens=1500, tool_choice="required"))
    result = agents.Runner.run_sync(agent, "Which colour?")
    assert painted and result.final_output == "done"


@pytest.mark.parametrize("kind", [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
@pytest.mark.parametrize("stream", [False, True])
def test_agents_go_their_whole_way(agents_client, kind, stream):
    """The model calls of its own accord, and answers behind the result."""
    painted = []

    @agents.function_tool
    def paint(colour: Colour, sure: bool) -> str:
        """Paints the wall."""
        painted.append((colour, sure))
        return "done"

    agent = agents.Agent(name="painter", instructions="Be brief.", tools=[paint],
                         model=kind(model="script", openai_client=agents_client))

    async def run():
        if not stream:
            return await agents.Runner.run(agent, "Which colour?")
        result = agents.Runner.run_streamed(agent, "Which colour?")
        async for _ in result.stream_events():
            pass
        return result

    assert asyncio.run(run()).final_output == "It is green." and painted == [(Colour.GREEN, True)]
