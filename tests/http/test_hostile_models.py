"""Models whose files do harm: weights that are no numbers, a chat template that does not end."""

import json
import struct
import threading
import time

import httpx
import pytest

import tiny_model
from canary import answer, budget, unharmed

# Minutes of work in few steps.
kRunaway = (
    "{% if messages[0]['content'] == 'run away' %}{% set x = 'ab' * 10000000 %}{% set y = x ~ 'c' %}{% set z = x ~ 'd' %}"
    "{% for a in range(99999) %}{% if y in z %}{% endif %}{% endfor %}{% endif %}"
)


def patched(folder, tensor, value):
    """A tiny model one weight of which, the last of the tensor, has this value."""
    tiny_model.write(folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    header_bytes = struct.unpack("<Q", data[:8])[0]
    end = 8 + header_bytes + json.loads(data[8:8 + header_bytes])[tensor]["data_offsets"][1]
    data[end - 2:end] = tiny_model.bf16(value)
    path.write_bytes(data)
    return folder


kPoison = ord("~")


def poisoned(folder):
    """A tiny model that computes what is no number for each token "~"."""
    tiny_model.write(folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    header_bytes = struct.unpack("<Q", data[:8])[0]
    begin, _ = json.loads(data[8:8 + header_bytes])["model.embed_tokens.weight"]["data_offsets"]
    place = 8 + header_bytes + begin + kPoison * tiny_model.kHidden * 2
    data[place:place + 2] = tiny_model.bf16(float("nan"))
    path.write_bytes(data)
    return folder


@pytest.mark.parametrize("tensor, message", [
    ("lm_head.weight", "the logit nan for token 255"),
    ("model.norm.weight", "not a finite number"),
    ("model.layers.0.mlp.down_proj.weight", "not a finite number"),
])
def test_what_fails_each_time_is_no_reason_to_retry(serve, tmp_path, tensor, message):
    model = patched(tmp_path / "model", tensor, float("nan"))
    with serve("--context", "256", model=model) as server:
        for path, prompt in [("/v1/completions", {"prompt": "abc"}),
                             ("/v1/chat/completions", {"messages": [{"role": "user", "content": "abc"}]})]:
            whole = httpx.post(server.url + path, json={**prompt, "max_tokens": 4})
            assert whole.status_code == 422, whole.text
            assert message in whole.json()["error"]["message"]
            streamed = httpx.post(server.url + path, json={**prompt, "max_tokens": 4, "stream": True})
            events = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: ")]
            assert message in json.loads(events[-1])["error"]["message"], events
        assert server.metric("vllm:num_requests_running") == 0
        assert httpx.get(server.url + "/health").status_code == 200


def test_a_runaway_template_costs_seconds_of_one_worker(serve, tmp_path):
    model = tiny_model.write(tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    config["chat_template"] = kRunaway + config["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    with serve("--context", "256", model=model) as server:
        ended = []

        def run_away():
            begin = time.monotonic()
            body = {"messages": [{"role": "user", "content": "run away"}], "max_tokens": 1}
            response = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=60)
            ended.append((response.status_code, response.json()["error"]["message"], time.monotonic() - begin))

        def chat():
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
            return httpx.post(server.url + "/v1/chat/completions", json=body, timeout=60).status_code

        assert chat() == 200
        with unharmed(server):
            threads = [threading.Thread(target=run_away) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.2)
            begin = time.monotonic()
            answer(server)  # completions need no template, so the other worker serves them
            assert time.monotonic() - begin < budget(5)
            for thread in threads:
                thread.join()
            assert {status for status, _, _ in ended} <= {400, 429, 503}, ended
            assert any("seconds" in message for status, message, _ in ended if status == 400), ended
            most_seconds = budget(15)
            assert all(seconds < most_seconds for _, _, seconds in ended), ended
            assert chat() == 200
