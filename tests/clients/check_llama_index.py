"""LlamaIndex, in each dialect that it speaks."""

import asyncio

import pytest
from llama_index.core.llms import ChatMessage


@pytest.fixture
def make_llm(server, base_url):
    def make(dialect, model="tiny", length=30):
        if dialect == "ollama":
            from llama_index.llms.ollama import Ollama

            return Ollama(model=model, base_url=server.url, temperature=0, context_window=8192,
                          additional_kwargs={"num_predict": length})
        from llama_index.llms.openai_like import OpenAILike

        return OpenAILike(model=model, api_base=base_url, api_key="none", max_tokens=length, temperature=0, max_retries=0,
                          is_chat_model=dialect == "chat", is_function_calling_model=dialect == "chat")

    return make


def test_completes(make_llm):
    completions = make_llm("completions")
    assert completions.complete("Hello").text
    assert "".join(part.delta for part in completions.stream_complete("Hello")) == completions.complete("Hello").text


@pytest.mark.parametrize("dialect", ["chat", "ollama"])
def test_chats_and_streams(make_llm, dialect):
    messages = [ChatMessage(role="user", content="Hello")]
    llm = make_llm(dialect)
    whole = llm.chat(messages).message.content
    assert "".join(part.delta or "" for part in llm.stream_chat(messages)) == whole and whole


@pytest.mark.parametrize("dialect", ["chat", "ollama"])
def test_agents_go_their_whole_way(make_llm, dialect):
    from llama_index.core.agent.workflow import FunctionAgent

    painted = []

    def paint(colour: str, sure: bool) -> str:
        """Paints the wall."""
        painted.append((colour, sure))
        return "done"

    agent = FunctionAgent(tools=[paint], llm=make_llm(dialect, "script", 400), streaming=dialect != "ollama")

    async def run():
        return await agent.run("Paint.")

    assert asyncio.run(run()).response.content == "It is green." and painted == [("green", True)]


def test_embeds(server, base_url):
    from llama_index.embeddings.ollama import OllamaEmbedding
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    ours = OpenAILikeEmbedding(model_name="tiny", api_base=base_url, api_key="none")
    theirs = OllamaEmbedding(model_name="tiny", base_url=server.url)
    assert ours.get_text_embedding("Hello") == pytest.approx(theirs.get_text_embedding("Hello"), abs=1e-6)
