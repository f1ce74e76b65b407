"""The Anthropic Python SDK, unmodified, against a real server."""

import anthropic
import httpx
import pytest

kHi = [{"role": "user", "content": "Hello there"}]


@pytest.fixture
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)


def ask(claude, **change):
    """Greedy, unless the change says otherwise: the SDK knows no temperature."""
    extra = {"temperature": 0, **change.pop("extra_body", {})}
    return claude.messages.create(**{"model": "second", "max_tokens": 12, "messages": kHi, **change}, extra_body=extra)


def test_a_message(claude):
    answer = ask(claude)
    assert answer.type == "message" and answer.role == "assistant" and answer.model == "second"
    assert answer.id.startswith("msg_") and answer._request_id
    assert [block.type for block in answer.content] in (["text"], [])
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert 0 < answer.usage.output_tokens <= 12
    counted = claude.messages.count_tokens(model="second", messages=kHi)
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def test_a_stream_is_the_same_message(claude):
    whole = ask(claude, max_tokens=40)
    with claude.messages.stream(model="second", max_tokens=40, messages=kHi, extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "".join(block.text for block in whole.content)
    assert [block.text for block in final.content] == [block.text for block in whole.content]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert (final.usage.input_tokens + final.usage.cache_read_input_tokens
            == whole.usage.input_tokens + whole.usage.cache_read_input_tokens)


def test_raw_events_come_in_order(claude):
    events = [event.type for event in ask(claude, stream=True)]
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"]
    assert events.count("content_block_start") == events.count("content_block_stop")


def test_what_claude_code_sends(server):
    """A body and headers as captured from the command-line client, cut down."""
    body = {
        "model": "gpt-4o-mini", "max_tokens": 8, "temperature": 1, "stream": True,
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cch=1234;"},
                   {"type": "text", "text": "You are a coding assistant.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "List files", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "ls", "signature": "abc"},
                                              {"type": "text", "text": "Sure."}]},
            {"role": "system", "content": "Be quick."},
            {"role": "user", "content": "Go on"}],
        "metadata": {"user_id": "user_1"}, "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "output_config": {"effort": "medium"}, "thinking": {"type": "adaptive"},
    }
    answer = httpx.post(server.url + "/v1/messages?beta=true", json=body, headers={
        "anthropic-version": "2023-06-01", "x-api-key": "none", "anthropic-dangerous-direct-browser-access": "true",
        "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27"})
    assert answer.status_code == 200, answer.text
    assert "context_management" in answer.headers["x-headrace-ignored"]
    assert answer.text.startswith("event: message_start\n") and "event: message_stop\n" in answer.text
    # Who is billed is no part of the prompt.
    count = httpx.post(server.url + "/v1/messages/count_tokens", json={k: body[k] for k in ("system", "messages")})
    body["system"][0]["text"] = "x-anthropic-billing-header: another, much longer one, of another day"
    again = httpx.post(server.url + "/v1/messages/count_tokens", json={k: body[k] for k in ("system", "messages")})
    assert count.status_code == 200 and count.json() == again.json()


def test_cached_tokens_are_no_input(claude):
    messages = [{"role": "user", "content": "A long beginning that is the same each time. " * 6}]
    first = ask(claude, messages=messages).usage
    second = ask(claude, messages=messages).usage
    assert second.cache_read_input_tokens > first.cache_read_input_tokens or first.cache_read_input_tokens > 0
    total = first.input_tokens + first.cache_read_input_tokens
    assert second.input_tokens + second.cache_read_input_tokens == total


def test_stop_sequences(claude):
    text = ask(claude, max_tokens=60, system="abc").content[0].text
    stop = text[6:9]
    answer = ask(claude, max_tokens=60, system="abc", stop_sequences=[stop])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == stop
    assert "".join(block.text for block in answer.content) == text[:text.index(stop)]


def test_errors_are_the_right_exceptions(claude):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, extra_body={"temperature": -1})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert "temperature is -1" in caught.value.body["error"]["message"]
    assert caught.value.body["request_id"] == caught.value.request_id
    with pytest.raises(anthropic.NotFoundError):
        ask(claude, model="absent")
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, messages=[{"role": "user", "content": "x" * 600}])
    assert "prompt is too long" in caught.value.body["error"]["message"]
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]}])
    assert "messages[0].content[0].type" in caught.value.body["error"]["message"]


def test_models(claude):
    models = claude.models.list().data
    assert [model.id for model in models][1:] == ["gpt-4o-mini", "second"]
    assert claude.models.retrieve("second").type == "model"
