"""What the dialect promises of fields, offsets, counts and costs, against the real program."""

import json
import re
import socket
import threading
import time

import httpx
import pytest

from canary import budget, unharmed


def post(server, path, body, **options):
    return httpx.post(server.url + path, json=body, timeout=60, **options)


def complete(server, **body):
    response = post(server, "/v1/completions", {"max_tokens": 4, "temperature": 0, "ignore_eos": True, **body})
    assert response.status_code == 200, response.text
    return response.json()


def stream(server, path="/v1/completions", **body):
    """The events of a stream, without its end."""
    with httpx.stream("POST", server.url + path, timeout=60, json={"stream": True, "temperature": 0, **body}) as response:
        assert response.status_code == 200
        data = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(event) for event in data[:-1]]


def leave_after(server, body, seconds):
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        time.sleep(seconds)


def refusal(response, status, param):
    assert response.status_code == status, response.text[:300]
    error = response.json()["error"]
    assert error["param"] == param, error
    return error["message"]


@pytest.mark.parametrize("field,value", [
    ("truncate_prompt_tokens", 3), ("functions", [{"name": "f"}]), ("function_call", {"name": "f"}),
    ("repeat_penalty", 1.3), ("no_repeat_ngram_size", 2)])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_field_that_is_not_served_is_named(server, path, field, value):
    prompt = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    message = refusal(post(server, path, {**prompt, "max_tokens": 1, field: value}), 400, field)
    assert "not supported" in message


def test_an_unknown_field_is_accepted_and_named_in_a_header(server):
    body = {"prompt": "a", "max_tokens": 1, "temprature": 0.1, "x\r\ny": 1, "user": "u"}
    response = post(server, "/v1/completions", body)
    assert response.status_code == 200
    assert response.headers["x-headrace-ignored"] == "temprature (temperature?), x%0D%0Ay"
    with httpx.stream("POST", server.url + "/v1/completions", json={**body, "stream": True}) as streamed:
        assert streamed.headers["x-headrace-ignored"].startswith("temprature (temperature?)")
    assert "x-headrace-ignored" not in post(server, "/v1/completions", {"prompt": "a", "max_tokens": 1}).headers


def test_a_key_given_twice_is_named(server):
    for body in ('{"prompt":"a","max_tokens":1,"max_tokens":2}',
                 '{"prompt":"a","stream_options":{"max_tokens":1,"max_tokens":1}}'):
        response = httpx.post(server.url + "/v1/completions", content=body, headers={"Content-Type": "application/json"})
        assert "max_tokens" in refusal(response, 400, "max_tokens")


def test_tools_without_a_place_in_the_template_are_refused(server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "tools": [tool]}
    assert "no place for tools" in refusal(post(server, "/v1/chat/completions", body), 400, "tools")
    assert post(server, "/v1/chat/completions", {**body, "tool_choice": "none"}).status_code == 200


def test_offsets_are_into_the_text(server):
    for prompt in ("ab \u00e9\u20ac!", "<s>ab", [0, 97, 98], "x"):
        choice = complete(server, prompt=prompt, echo=True, logprobs=0, max_tokens=3)["choices"][0]
        scores = choice["logprobs"]
        text = choice["text"]
        offsets = scores["text_offset"]
        assert offsets[0] == 0 and offsets == sorted(offsets) and offsets[-1] <= len(text)
        for token, offset in zip(scores["tokens"], offsets):
            if len(token) == 1 and token.isascii():
                assert text[offset] == token


def test_the_last_text_chunk_carries_the_reason(server):
    for path, prompt, num_roles in (("/v1/completions", {"prompt": "ab"}, 0),
                                    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "ab"}]}, 1)):
        events = stream(server, path, **prompt, max_tokens=5, ignore_eos=True, logit_bias={str(ord("a")): 100})
        assert len(events) == num_roles + 5
        reasons = [event["choices"][0]["finish_reason"] for event in events]
        assert reasons == [None] * (num_roles + 4) + ["length"]


def test_a_stop_string_counts_as_stop_and_nothing_after_it(server):
    before = httpx.get(server.url + "/metrics").text

    def count(page, reason):
        row = rf'^vllm:request_success_total{{.*finished_reason="{reason}"}} (\S+)$'
        return float(re.search(row, page, re.M).group(1))

    answer = complete(server, prompt="ab", max_tokens=480, stop="aa", logit_bias={str(ord("a")): 100}, logprobs=0)
    assert answer["choices"][0]["text"] == "" and answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 2
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == 2
    end = time.monotonic() + 60
    after = before  # an answer is counted after its last byte has been sent
    while count(after, "stop") == count(before, "stop") and time.monotonic() < end:
        after = httpx.get(server.url + "/metrics").text
    assert count(after, "stop") == count(before, "stop") + 1
    assert count(after, "abort") == count(before, "abort")


def test_cached_tokens_stay_the_same_in_a_stream(server):
    prompt = "cached prompts are known from the first token on; " * 3
    for _ in range(2):
        events = stream(server, prompt=prompt, max_tokens=6, ignore_eos=True,
                        stream_options={"include_usage": True, "continuous_usage_stats": True})
        cached = {event["usage"]["prompt_tokens_details"]["cached_tokens"] for event in events}
        assert len(cached) == 1
    assert cached.pop() > 0


def test_the_answer_calls_the_model_as_the_client_does(server):
    assert complete(server, prompt="a", model="second")["model"] == "second"
    assert {event["model"] for event in stream(server, prompt="a", model="gpt-4o-mini", max_tokens=2)} == {"gpt-4o-mini"}


def test_small_courtesies(server):
    assert httpx.get(server.url + "/v1/models/").json() == httpx.get(server.url + "/v1/models").json()
    body = {"messages": [{"role": "user", "content": None}], "max_tokens": 1}
    assert post(server, "/v1/chat/completions", body).status_code == 200
    numerics = httpx.get(server.url + "/version").json()["numerics_id"]
    assert complete(server, prompt="a")["system_fingerprint"].startswith(numerics + "-")
    made = server.metric("vllm:prompt_tokens_total")
    echoed = complete(server, prompt="only said again", echo=True, max_tokens=0)
    assert echoed["choices"][0]["text"] == "only said again"
    assert echoed["choices"][0]["finish_reason"] == "length" and echoed["choices"][0]["logprobs"] is None
    assert server.metric("vllm:prompt_tokens_total") == made  # no forward pass


def test_a_prompt_that_is_too_long_is_refused_before_it_is_counted(server):
    with unharmed(server, grown_mib=64):
        for body in ({"prompt": "x" * 20_000_000}, {"prompt": ["a", "y" * 10_000_000]}, {"prompt": [5] * 1_000_000}):
            begin = time.monotonic()
            message = refusal(post(server, "/v1/completions", body), 400, "prompt")
            assert "512 tokens" in message and time.monotonic() - begin < budget(5)
        body = {"messages": [{"role": "user", "content": "z" * 10_000_000}]}
        assert "512 tokens" in refusal(post(server, "/v1/chat/completions", body), 400, "messages")


def test_many_choices_let_others_through(server):
    with unharmed(server):
        body = {"prompt": [[97]] * 1024, "max_tokens": 400, "ignore_eos": True}
        crowd = threading.Thread(target=leave_after, args=(server, body, 4))
        crowd.start()
        time.sleep(1)
        waiting = server.metric("vllm:num_requests_waiting") + server.metric("vllm:num_requests_running")
        assert waiting <= 33
        assert complete(server, prompt="me too", max_tokens=2)["choices"]
        crowd.join()
        server.wait_until_idle()


def test_scores_are_bounded_by_the_memory_of_requests(serve):
    with serve("--context", "512", "--request-memory", "64M", "--max-body", "8M") as server:
        with unharmed(server, grown_mib=64):
            body = {"prompt": [[97] * 60] * 200, "max_tokens": 1, "echo": True, "logprobs": 20}
            answer = post(server, "/v1/completions", body)
            assert answer.status_code == 200, answer.text[:300]
            assert len(answer.json()["choices"]) == 200
            for more in ({"prompt": [[97] * 60] * 1024}, {"prompt": [[97]] * 500, "max_tokens": 450}):
                assert "MiB" in refusal(post(server, "/v1/completions", {**body, **more}), 400, "logprobs")


def test_caches_of_two_salts_are_apart(server):
    prompt = "§ begins no other test's prompt, and it is long enough to fill some blocks of the cache; " * 2

    def cached(salt):
        usage = complete(server, prompt=prompt, **({"cache_salt": salt} if salt else {}))["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached("one") == 0
    assert cached("two") == 0
    assert cached(None) == 0
    assert cached("one") > 0 and cached("two") > 0
    response = post(server, "/v1/completions", {"prompt": "a", "cache_salt": "x" * 257})
    assert "256 bytes" in refusal(response, 400, "cache_salt")


def test_answers_of_one_seed_do_not_overlap(server):
    def texts(seed):
        body = {"prompt": "ab", "n": 4, "seed": seed, "temperature": 1, "top_p": 1, "max_tokens": 8}
        return [choice["text"] for choice in complete(server, **body)["choices"]]

    first, second = texts(1), texts(2)
    assert len(set(first)) == 4 and not set(first) & set(second)
    assert texts(1) == first


def test_metrics_that_tools_read(server):
    page = httpx.get(server.url + "/metrics").text
    sources = {name: float(value) for name, value in re.findall(
        r'^vllm:prompt_tokens_by_source_total{.*source="(\w+)"} (\S+)$', page, re.M)}
    assert set(sources) == {"local_compute", "local_cache_hit", "external_kv_transfer"}
    assert sum(sources.values()) == server.metric("vllm:prompt_tokens_total")
    assert re.search(r'^vllm:cache_config_info{.*block_size="16",num_gpu_blocks="\d+".*} 1$', page, re.M)
    values = dict(re.findall(r"^(process_\w+) (\S+)$", page, re.M))
    assert abs(float(values["process_start_time_seconds"]) - time.time()) < 3600
    assert 0 < float(values["process_open_fds"]) < float(values["process_max_fds"])
    assert 0 < float(values["process_resident_memory_bytes"]) < float(values["process_virtual_memory_bytes"])
    assert float(values["process_cpu_seconds_total"]) > 0


def test_sampling_defaults_are_shown(server):
    sampling = httpx.get(server.url + "/api/headrace/status").json()["sampling"]
    assert sampling == {"temperature": 0.7, "top_p": 0.95, "top_k": 0, "min_p": 0, "repetition_penalty": 1}


def test_the_tokenizer_is_not_bounded_by_the_context(server):
    ids = post(server, "/tokenize", {"prompt": "x" * 100_000, "add_special_tokens": False}).json()
    assert ids["count"] == 100_000
    back = post(server, "/detokenize", {"tokens": ids["tokens"]}).json()
    assert back["prompt"] == "x" * 100_000
