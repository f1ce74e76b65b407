"""LangChain, LiteLLM, instructor and pydantic-ai."""

import asyncio
import enum

import pydantic
import pytest


class Colour(str, enum.Enum):
    RED = "red"
    GREEN = "green"


class Answer(pydantic.BaseModel):
    """An answer."""

    colour: Colour
    sure: bool


# LangChain


@pytest.fixture
def langchain_chat(base_url):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="tiny", base_url=base_url, api_key="none", max_tokens=1500, temperature=0, max_retries=0)


def test_langchain_invokes_and_streams(langchain_chat):
    whole = langchain_chat.invoke("Hello")
    chunks = list(langchain_chat.stream("Hello"))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    assert whole.usage_metadata["output_tokens"] > 0


def test_langchain_structures(langchain_chat):
    for method in ("json_schema", "function_calling"):
        assert isinstance(langchain_chat.with_structured_output(Answer, method=method).invoke("Colour?"), Answer)


def test_langchain_tools(langchain_chat):
    message = langchain_chat.bind_tools([Answer], tool_choice="any").invoke("Colour?")
    assert message.tool_calls[0]["name"] == "Answer" and message.tool_calls[0]["args"]["colour"] in ("red", "green")


def test_langchain_responses(base_url):
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model="tiny", base_url=base_url, api_key="none", max_tokens=20, temperature=0, max_retries=0,
                      use_responses_api=True)
    whole = chat.invoke("Hello")
    assert whole.text and whole.response_metadata["id"].startswith("resp_")


# LiteLLM


def test_litellm(base_url):
    import litellm

    arguments = dict(model="hosted_vllm/tiny", api_base=base_url, api_key="none", max_tokens=12, temperature=0,
                     messages=[{"role": "user", "content": "Hello"}])
    whole = litellm.completion(**arguments)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**arguments, stream=True))
    assert text == whole.choices[0].message.content and whole.usage.completion_tokens > 0
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**{**arguments, "temperature": -1})
    called = litellm.completion(**{**arguments, "max_tokens": 1500}, tool_choice="required", tools=[
        {"type": "function", "function": {"name": "paint", "parameters": Answer.model_json_schema()}}])
    assert called.choices[0].message.tool_calls[0].function.name == "paint"


# instructor


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor(base_url, mode):
    import instructor
    import openai

    client = instructor.from_openai(openai.OpenAI(base_url=base_url, api_key="none", max_retries=0),
                                    mode=getattr(instructor.Mode, mode))
    answer = client.chat.completions.create(model="tiny", response_model=Answer, max_tokens=1500, max_retries=0,
                                            messages=[{"role": "user", "content": "Colour?"}])
    assert isinstance(answer, Answer)


# pydantic-ai


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("native", [False, True])
def test_pydantic_ai(base_url, api, native):
    import pydantic_ai
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    model = kind("tiny", provider=OpenAIProvider(base_url=base_url, api_key="none"))
    agent = pydantic_ai.Agent(model, output_type=pydantic_ai.NativeOutput(Answer) if native else Answer,
                              model_settings={"max_tokens": 1500})
    assert isinstance(asyncio.run(agent.run("Colour?")).output, Answer)
