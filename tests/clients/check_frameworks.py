"""LangChain, LiteLLM, instructor and pydantic-ai, each in every dialect that it speaks.

The model "tiny" says what it is held to; "script" calls the tool "paint" of its own accord and answers behind its result.
"""

import asyncio
import enum
import gc

import pydantic
import pytest

kHi = [{"role": "user", "content": "Hello"}]


class Colour(str, enum.Enum):
    RED = "red"
    GREEN = "green"


class Answer(pydantic.BaseModel):
    """An answer."""

    colour: Colour
    sure: bool


def paint(colour: Colour, sure: bool) -> str:
    """Paints the wall."""
    return f"painted {colour.value}, {sure}"


# LangChain

kChats = ["chat", "responses", "anthropic", "ollama"]


@pytest.fixture
def langchain_chat(server, base_url):
    def make(dialect, model="tiny", length=1500):
        common = dict(model=model, temperature=0)
        if dialect == "ollama":
            from langchain_ollama import ChatOllama

            return ChatOllama(**common, base_url=server.url, num_predict=length)
        if dialect == "anthropic":
            from langchain_anthropic import ChatAnthropic

            return ChatAnthropic(**common, base_url=server.url, api_key="none", max_tokens=length, max_retries=0)
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(**common, base_url=base_url, api_key="none", max_tokens=length, max_retries=0,
                          use_responses_api=dialect == "responses")

    return make


@pytest.mark.parametrize("dialect", kChats)
def test_langchain_invokes_and_streams(langchain_chat, dialect):
    chat = langchain_chat(dialect, length=30)
    whole = chat.invoke("Hello")
    chunks = list(chat.stream("Hello"))
    assert "".join(chunk.text for chunk in chunks) == whole.text and whole.text
    assert whole.usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("dialect, method", [("chat", "json_schema"), ("chat", "function_calling"),
                                             ("responses", "json_schema"), ("anthropic", "function_calling"),
                                             ("anthropic", "json_schema"), ("ollama", "json_schema")])
def test_langchain_structures(langchain_chat, dialect, method):
    answer = langchain_chat(dialect).with_structured_output(Answer, method=method).invoke("Colour?")
    assert isinstance(answer, Answer)


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_langchain_forces_tools(langchain_chat, dialect):
    message = langchain_chat(dialect).bind_tools([Answer], tool_choice="any").invoke("Colour?")
    assert message.tool_calls[0]["name"] == "Answer" and message.tool_calls[0]["args"]["colour"] in ("red", "green")


@pytest.mark.parametrize("dialect", kChats)
def test_langchain_agents_go_their_whole_way(langchain_chat, dialect):
    from langchain.agents import create_agent

    agent = create_agent(langchain_chat(dialect, "script"), tools=[paint])
    messages = agent.invoke({"messages": [{"role": "user", "content": "Paint."}]})["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert messages[1].tool_calls[0]["args"] == {"colour": "green", "sure": True}
    assert messages[2].content == "painted green, True" and messages[3].text == "It is green."


def test_langchain_embeds(server, base_url):
    from langchain_ollama import OllamaEmbeddings
    from langchain_openai import OpenAIEmbeddings

    ours = OpenAIEmbeddings(model="text-embedding-3-small", base_url=base_url, api_key="none",
                            check_embedding_ctx_length=False)
    theirs = OllamaEmbeddings(model="tiny", base_url=server.url)
    assert ours.embed_query("Hello") == pytest.approx(theirs.embed_query("Hello"), abs=1e-6)
    assert len(ours.embed_documents(["a", "b", "c"])) == 3


# LiteLLM

kProviders = ["openai", "hosted_vllm", "anthropic", "ollama_chat"]


@pytest.fixture
def litellm_chat(server, base_url):
    import litellm

    def ask(provider, model="script", **more):
        base = base_url if provider in ("openai", "hosted_vllm", "text-completion-openai") else server.url
        gc.collect()  # streams that the package left open: closed later, inside its pool, they would lock it
        return litellm.completion(**{"model": f"{provider}/{model}", "api_base": base, "api_key": "none",
                                     "max_tokens": 400, "temperature": 0, "messages": kHi, **more})

    return ask


@pytest.mark.parametrize("provider", [*kProviders, "text-completion-openai"])
def test_litellm_answers_and_streams(litellm_chat, provider):
    whole = litellm_chat(provider, "tiny", max_tokens=12)
    stream = litellm_chat(provider, "tiny", max_tokens=12, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == whole.choices[0].message.content and whole.usage.completion_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", kProviders)
def test_litellm_calls_tools(litellm_chat, provider, stream):
    import litellm

    tools = [{"type": "function", "function": {"name": "paint", "parameters": Answer.model_json_schema()}}]
    answer = litellm_chat(provider, tools=tools, stream=stream)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=kHi)
    message = answer.choices[0].message
    # Of a stream in Ollama's dialect this package says what the last line says.
    assert answer.choices[0].finish_reason == "tool_calls" or (stream and provider == "ollama_chat")
    assert Answer.model_validate_json(message.tool_calls[0].function.arguments).colour is Colour.GREEN
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "name": "paint", "content": "done"}
    second = litellm_chat(provider, tools=tools, messages=[*kHi, message.model_dump(), result])
    assert second.choices[0].message.content == "It is green."


def test_litellm_knows_errors_and_forces_calls(litellm_chat):
    import litellm

    for provider in ("openai", "hosted_vllm", "anthropic"):
        with pytest.raises(litellm.BadRequestError):
            litellm_chat(provider, temperature=-1)
        with pytest.raises(litellm.NotFoundError):
            litellm_chat(provider, "absent")
    called = litellm_chat("hosted_vllm", "tiny", max_tokens=1500, tool_choice="required", tools=[
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


def test_instructor_of_anthropic(server):
    import anthropic
    import instructor

    client = instructor.from_anthropic(anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0))
    answer = client.messages.create(model="tiny", response_model=Answer, max_tokens=1500, max_retries=0,
                                    messages=[{"role": "user", "content": "Colour?"}])
    assert isinstance(answer, Answer)


# pydantic-ai


@pytest.fixture
def pydantic_model(server, base_url):
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    def make(api, name):
        if api == "anthropic":
            import anthropic

            client = anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0)
            return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
        if api == "ollama":
            return OpenAIChatModel(name, provider=OllamaProvider(base_url=base_url))
        kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        return kind(name, provider=OpenAIProvider(base_url=base_url, api_key="none"))

    return make


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic", "ollama"])
@pytest.mark.parametrize("native", [False, True])
def test_pydantic_ai_answers_in_a_form(pydantic_model, api, native):
    import pydantic_ai

    if native and api == "anthropic":
        pytest.skip("this package knows by the model's name whether Anthropic's schemas may be used")
    agent = pydantic_ai.Agent(pydantic_model(api, "tiny"), model_settings={"max_tokens": 1500},
                              output_type=pydantic_ai.NativeOutput(Answer) if native else Answer)
    assert isinstance(asyncio.run(agent.run("Colour?")).output, Answer)


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic", "ollama"])
@pytest.mark.parametrize("stream", [False, True])
def test_pydantic_ai_agents_go_their_whole_way(pydantic_model, api, stream):
    import pydantic_ai

    agent = pydantic_ai.Agent(pydantic_model(api, "script"), tools=[paint])
    seen = []

    async def run():
        async def read(_, events):
            seen.extend([event async for event in events])

        return (await agent.run("Paint.", event_stream_handler=read if stream else None)).output

    assert asyncio.run(run()) == "It is green." and bool(seen) == stream
