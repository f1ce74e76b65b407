"""Adapters over HTTP: chosen by name, loaded, replaced and unloaded while the server answers."""

import json
import os
import random
import struct
import threading

import httpx
import pytest
import tiny_model


def write_adapter(folder, seed, rank=4, config=None):
    """Random q and v projections for the tiny model."""
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    header, data = {}, bytearray()
    shapes = {"q_proj": tiny_model.kHeads * tiny_model.kHeadDim, "v_proj": tiny_model.kKvHeads * tiny_model.kHeadDim}
    for layer in range(tiny_model.kLayers):
        for module, outputs in shapes.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            for half, shape in (("A", (rank, tiny_model.kHidden)), ("B", (outputs, rank))):
                begin = len(data)
                for _ in range(shape[0] * shape[1]):
                    data += struct.pack("<f", rng.gauss(0, 0.5))
                header[f"{name}.lora_{half}.weight"] = {
                    "dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(
        json.dumps(config or {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": list(shapes)}))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    base = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(["one", "two", "three"]):
        write_adapter(base / "root" / name, seed)
    write_adapter(base / "outside", 9)
    write_adapter(base / "root" / "broken", 5, config={"peft_type": "LORA", "r": 7})
    os.symlink(base / "outside", base / "root" / "link")
    return base / "root"


@pytest.fixture(scope="module")
def running(serve, root):
    with serve("--context", "256", "--adapter-root", str(root), "--adapter", f"first={root}/one") as server:
        yield server
        assert server.process.poll() is None, "the server died:\n" + "".join(server.errors)


def answer(server, model, prompt="abcdefghijklmnop and so on"):
    body = {"model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0, "seed": 1}
    response = httpx.post(server.url + "/v1/completions", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["model"] == model
    return response.json()["choices"][0]["text"]


def load(server, name, path, **more):
    return httpx.post(server.url + "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(path), **more})


def unload(server, name):
    return httpx.post(server.url + "/v1/unload_lora_adapter", json={"lora_name": name})


def names(server):
    return {model["id"]: model for model in httpx.get(server.url + "/v1/models").json()["data"]}


def test_an_adapter_is_chosen_by_its_name(running):
    plain = next(iter(names(running)))
    assert answer(running, "first") != answer(running, plain)
    assert answer(running, "first") == answer(running, "first"), "from the cache of prefixes as well"
    entry = names(running)["first"]
    assert entry["parent"] == plain and entry["root"].endswith("/one")
    assert httpx.get(running.url + "/v1/models/first").json() == entry


def test_adapters_come_and_go(running, root):
    assert "two" not in names(running)
    response = load(running, "two", "two")
    assert response.status_code == 200
    assert response.text == "Success: LoRA adapter 'two' added successfully."
    before = answer(running, "two")
    again = load(running, "two", "three")
    assert again.status_code == 400 and "already been loaded" in again.text
    assert answer(running, "two") == before
    assert load(running, "two", root / "three", load_inplace=True).status_code == 200
    assert answer(running, "two") != before, "the cache of the old one is not used"
    assert load(running, "two", "two", load_inplace=True).status_code == 200
    assert answer(running, "two") == before
    assert unload(running, "two").text == "Success: LoRA adapter 'two' removed successfully."
    assert unload(running, "two").status_code == 404
    body = {"model": "two", "prompt": "a"}
    assert httpx.post(running.url + "/v1/completions", json=body).status_code == 404


@pytest.mark.parametrize("path", ["../outside", "link", "one/../../outside", "/etc", "nothing", "", ".", "one//", "%2e%2e/outside", "x" * 5000, "one\0"])
def test_nothing_outside_the_root_is_read(running, path):
    before = names(running)
    assert load(running, "bad", path).status_code in (400, 404)
    assert names(running) == before


def test_a_load_that_fails_changes_nothing(running):
    before, text = names(running), answer(running, "first")
    response = load(running, "first", "broken", load_inplace=True)
    assert response.status_code == 400 and "rank" in response.text
    assert names(running) == before and answer(running, "first") == text


@pytest.mark.parametrize("body", [{}, {"lora_name": "x"}, {"lora_path": "one"}, {"lora_name": 3, "lora_path": "one"},
                                  {"lora_name": "a\nb", "lora_path": "one"}, {"lora_name": "x" * 300, "lora_path": "one"}])
def test_bad_bodies_are_refused(running, body):
    response = httpx.post(running.url + "/v1/load_lora_adapter", json=body)
    assert response.status_code == 400, response.text


def test_the_name_of_a_model_is_taken(running):
    model = next(iter(names(running)))
    assert load(running, model, "one").status_code == 400


def test_without_a_root_nothing_is_loaded(server):
    response = load(server, "x", "one")
    assert response.status_code == 400 and "--adapter-root" in response.text


def test_replacing_under_load_disturbs_nobody(running, root):
    """Requests of the base and of another adapter see the same answers while a third one changes."""
    assert load(running, "changing", "two").status_code == 200
    plain = next(iter(names(running)))
    expected = {name: answer(running, name) for name in (plain, "first")}
    allowed = {answer(running, "changing")}
    assert load(running, "changing", "three", load_inplace=True).status_code == 200
    allowed.add(answer(running, "changing"))
    failures, done = [], threading.Event()

    def ask(name, good):
        while not done.is_set():
            try:
                if answer(running, name) not in good:
                    failures.append(name)
            except AssertionError as error:
                failures.append(f"{name}: {error}")

    threads = [threading.Thread(target=ask, args=(name, {text})) for name, text in expected.items()]
    threads += [threading.Thread(target=ask, args=("changing", allowed)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(10):
        response = load(running, "changing", "two" if i % 2 else "three", load_inplace=True)
        assert response.status_code == 200, response.text
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert unload(running, "changing").status_code == 200


def test_metrics_name_the_adapters(running):
    text = httpx.get(running.url + "/metrics").text
    line = next(line for line in text.splitlines() if line.startswith("vllm:lora_requests_info{"))
    assert 'max_lora="32"' in line and "running_lora_adapters=" in line
