"""LlamaIndex."""


def test_llama_index(base_url):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    options = dict(model="tiny", api_base=base_url, api_key="none", max_tokens=12, temperature=0, max_retries=0)
    completions = OpenAILike(**options, is_chat_model=False)
    assert completions.complete("Hello").text
    assert "".join(part.delta for part in completions.stream_complete("Hello")) == completions.complete("Hello").text
    chat = OpenAILike(**options, is_chat_model=True)
    messages = [ChatMessage(role="user", content="Hello")]
    whole = chat.chat(messages).message.content
    assert "".join(part.delta or "" for part in chat.stream_chat(messages)) == whole
