"""ollama-python, unmodified, against a real server; pulls against the stand-in for a hub."""

import json
import os
import subprocess
import sys

import httpx
import ollama
import pytest

from conftest import kRepository

kHi = [{"role": "user", "content": "Hello there"}]
kGreedy = {"temperature": 0, "num_predict": 20}


@pytest.fixture
def llama(server):
    return ollama.Client(host=server.url)


def test_chat(llama):
    whole = llama.chat(model="second", messages=kHi, options=kGreedy)
    assert whole.done and whole.done_reason in ("stop", "length") and whole.message.role == "assistant"
    assert whole.eval_count <= 20 and whole.prompt_eval_count > 0 and whole.total_duration > 0
    chunks = list(llama.chat(model="second", messages=kHi, options=kGreedy, stream=True))
    assert "".join(chunk.message.content for chunk in chunks) == whole.message.content
    assert [chunk.done for chunk in chunks[:-1]] == [False] * (len(chunks) - 1) and chunks[-1].done
    assert chunks[-1].eval_count == whole.eval_count


def test_generate_goes_on_from_its_context(llama):
    first = llama.generate(model="second", prompt="Once", options=kGreedy)
    assert len(first.context) >= first.prompt_eval_count + first.eval_count
    second = llama.generate(model="second", prompt="And then?", context=first.context, options=kGreedy)
    assert second.prompt_eval_count > len(first.context)
    raw = llama.generate(model="second", prompt="abc", raw=True, options=kGreedy)
    assert raw.context is None and raw.prompt_eval_count <= 4


def test_the_same_text_as_other_dialects(llama, client):
    ours = llama.chat(model="second", messages=kHi, options={"temperature": 0, "num_predict": 30}).message.content
    theirs = client.chat.completions.create(model="second", messages=kHi, max_tokens=30, temperature=0)
    assert ours == theirs.choices[0].message.content


def test_models_are_listed_and_shown(llama, server):
    names = [model.model for model in llama.list().models]
    assert names[1:] == ["gpt-4o-mini:latest", "second:latest"]
    assert [model.model for model in llama.ps().models] == names
    assert llama.chat(model=names[-1], messages=kHi, options=kGreedy).model == names[-1]
    shown = llama.show("second")
    assert "completion" in shown.capabilities
    assert [value for key, value in shown.modelinfo.items() if key.endswith(".context_length")] == [512]
    assert httpx.get(server.url + "/", headers={"Accept": "application/json"}).text == "Ollama is running"
    assert httpx.head(server.url + "/").status_code == 200


def test_loading_is_answered_without_work(llama):
    assert llama.chat(model="second", messages=[]).done_reason == "load"
    # It was named at the start, and so stays.
    assert llama.generate(model="second", prompt="", keep_alive=0).done_reason == "load"


def test_log_probs(llama):
    answer = llama.chat(model="second", messages=kHi, options={"temperature": 0, "num_predict": 5}, logprobs=True,
                        top_logprobs=2)
    assert len(answer.logprobs) == answer.eval_count
    assert all(len(each.top_logprobs) == 2 and each.logprob == each.top_logprobs[0].logprob for each in answer.logprobs)


def test_errors(llama):
    cases = [
        (dict(options={"mirostat": 1}), 400, "options.mirostat"),
        (dict(model="absent"), 404, "absent"),
        (dict(messages=[{"role": "user", "content": "a", "images": [b"\x89PNG"]}]), 400, "messages[0].images"),
    ]
    for change, status, text in cases:
        with pytest.raises(ollama.ResponseError) as caught:
            llama.chat(**{"model": "second", "messages": kHi, **change})
        assert caught.value.status_code == status and text in caught.value.error, caught.value.error



def test_embeddings(llama, client):
    texts = ["one", "another text"]
    answer = llama.embed(model="second", input=texts)
    assert len(answer.embeddings) == 2 and answer.prompt_eval_count > 0
    assert all(abs(sum(value * value for value in each) - 1) < 1e-4 for each in answer.embeddings)
    theirs = client.embeddings.create(model="second", input=texts, encoding_format="float").data
    assert [list(each) for each in answer.embeddings] == [each.embedding for each in theirs]
    short = llama.embed(model="second", input="one", dimensions=8).embeddings[0]
    assert len(short) == 8 and abs(sum(value * value for value in short) - 1) < 1e-4
    old = llama.embeddings(model="second", prompt="one").embedding
    length = sum(value * value for value in old) ** 0.5
    assert all(abs(a / length - b) < 1e-5 for a, b in zip(old, answer.embeddings[0], strict=True))
    assert len(llama.embed(model="second", input="long " * 300).embeddings) == 1
    with pytest.raises(ollama.ResponseError) as caught:
        llama.embed(model="second", input="long " * 300, truncate=False)
    assert caught.value.status_code == 400 and "too long" in caught.value.error


@pytest.fixture
def hub():
    process = subprocess.Popen([sys.executable, str(kRepository / "tests/hub/stand_in.py")], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.stdin.close()
    process.wait(timeout=20)


def test_pull_and_delete(serve, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serve("--context", "128") as server:
        llama = ollama.Client(host=server.url)
        states = list(llama.pull("hf:org/plain", stream=True))
        assert states[0].status == "pulling manifest" and states[-1].status == "success"
        found = [path for path in (tmp_path / "headrace/models").rglob("model.safetensors")]
        assert len(found) == 1
        assert llama.pull("hf:org/plain").status == "success"  # it is there
        assert llama.delete("hf:org/plain").status == "success" and not found[0].exists()
        with pytest.raises(ollama.ResponseError) as caught:
            llama.delete("hf:org/plain")
        assert caught.value.status_code == 404
        with pytest.raises(ollama.ResponseError) as caught:
            llama.pull("hf:org/missing")
        assert "Repository not found" in caught.value.error
        streamed = httpx.post(server.url + "/api/pull", json={"model": "http://127.0.0.1:1/a.gguf"})
        assert streamed.status_code == 400 and "does not pull from URLs" in streamed.json()["error"]
        assert json.loads(httpx.get(server.url + "/api/tags").text)["models"]
    assert os.path.exists(tmp_path)
