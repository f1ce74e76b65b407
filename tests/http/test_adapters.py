"""Adapters over HTTP: chosen by name, loaded, replaced and unloaded while the server answers."""

import base64
import json
import os
import random
import shutil
import struct
import subprocess
import threading
import time

import httpx
import pytest

import tiny_model
from conftest import kBinary


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


def upload(server, name, folder, **more):
    body = {"lora_name": name, "adapter_config": json.loads((folder / "adapter_config.json").read_text()),
            "adapter_weights": base64.b64encode((folder / "adapter_model.safetensors").read_bytes()).decode()}
    return httpx.post(server.url + "/v1/load_lora_adapter", json={**body, **more})


@pytest.fixture(scope="module")
def uploads(serve, root):
    with serve("--context", "256", "--adapter-uploads", "--max-body", "1M", "--adapter", f"first={root}/one") as server:
        yield server
        assert server.process.poll() is None, "the server died:\n" + "".join(server.errors)


def test_an_adapter_that_is_sent_answers_as_from_its_folder(uploads, root):
    assert upload(uploads, "sent", root / "one").status_code == 200
    assert answer(uploads, "sent") == answer(uploads, "first")
    assert names(uploads)["sent"]["root"] == "sent by a client"
    assert upload(uploads, "sent", root / "two").status_code == 400
    assert upload(uploads, "sent", root / "two", load_inplace=True).status_code == 200
    assert answer(uploads, "sent") != answer(uploads, "first")
    assert unload(uploads, "sent").status_code == 200
    assert "sent" not in names(uploads)


def hostile_uploads():
    def cut(body):
        body["adapter_weights"] = body["adapter_weights"][:400]

    def no_base64(body):
        body["adapter_weights"] = body["adapter_weights"][:-4] + "a b\n"

    def huge_header(body):
        body["adapter_weights"] = base64.b64encode(b"\xff" * 64).decode()

    def path_as_well(body):
        body["lora_path"] = "../outside"

    def weights_alone(body):
        del body["adapter_config"]

    def config_alone(body):
        del body["adapter_weights"]

    def config_of_text(body):
        body["adapter_config"] = "../../etc/passwd"

    def deep(body):
        body["adapter_config"] = {"r": {"r": {"r": []}}}

    def too_large(body):
        body["adapter_weights"] = "A" * (2 << 20)

    def bad_name(body):
        body["lora_name"] = "a\n../b"

    return [cut, no_base64, huge_header, path_as_well, weights_alone, config_alone, config_of_text, deep, too_large, bad_name]


@pytest.mark.parametrize("spoil", hostile_uploads(), ids=lambda spoil: spoil.__name__)
def test_hostile_uploads_change_nothing(uploads, root, spoil):
    before, text = names(uploads), answer(uploads, "first")
    body = {"lora_name": "first", "load_inplace": True, "adapter_config": json.loads((root / "two" / "adapter_config.json").read_text()),
            "adapter_weights": base64.b64encode((root / "two" / "adapter_model.safetensors").read_bytes()).decode()}
    spoil(body)
    try:
        status = httpx.post(uploads.url + "/v1/load_lora_adapter", json=body).status_code
    except httpx.WriteError:  # refused before it was sent
        status = 413
    assert status in (400, 413)
    assert names(uploads) == before and answer(uploads, "first") == text


def test_a_folder_is_not_loaded_where_only_uploads_are_taken(uploads, root):
    response = load(uploads, "folder", root / "one")
    assert response.status_code == 400 and "--adapter-root" in response.text


def test_nothing_is_taken_where_only_folders_are_loaded(running, root):
    response = upload(running, "sent", root / "one")
    assert response.status_code == 400 and "--adapter-uploads" in response.text


def test_an_adapter_for_another_model_is_loaded_with_a_warning(running, root):
    folder = root / "other_base"
    write_adapter(folder, 1, config={"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"],
                                     "base_model_name_or_path": "somebody/another-7b"})
    response = load(running, "stranger", "other_base")
    assert response.status_code == 200
    assert "added successfully. Warning: it was made for 'somebody/another-7b'" in response.text
    assert unload(running, "stranger").text == "Success: LoRA adapter 'stranger' removed successfully."


def test_a_model_that_slept_has_its_adapters_again(serve, root, tmp_path):
    """Those of the command line, of a path and of an upload; one whose folder is gone is told."""
    tiny_model.write(tmp_path / "models" / "late")
    for name in ("one", "two"):
        shutil.copytree(root / name, tmp_path / "root" / name)
    with serve("--context", "256", "--on-demand", str(tmp_path / "models"), "--keep-alive", "1", "--adapter-uploads",
               "--adapter-root", str(tmp_path / "root"), "--adapter", f"given@late={root}/three") as server:
        assert names(server)["given"]["parent"] == "late"
        texts = {"given": answer(server, "given")}
        assert load(server, "by-path", "one", model="late").status_code == 200
        assert load(server, "vanishing", "two", model="late").status_code == 200
        assert upload(server, "sent", root / "two", model="late").status_code == 200
        for name in ("by-path", "vanishing", "sent"):
            texts[name] = answer(server, name)
        assert texts["vanishing"] == texts["sent"] != texts["by-path"]
        end = time.monotonic() + 60
        while names(server)["late"]["status"]["value"] != "asleep":
            assert time.monotonic() < end, "it does not sleep"
            time.sleep(0.1)
        assert {"given", "by-path", "vanishing", "sent"} <= set(names(server))
        assert httpx.get(server.url + "/v1/models/sent").json()["parent"] == "late"
        shutil.rmtree(tmp_path / "root" / "two")
        for name in ("given", "by-path", "sent"):
            assert answer(server, name) == texts[name]
        lost = httpx.post(server.url + "/v1/completions", json={"model": "vanishing", "prompt": "a"})
        assert lost.status_code == 503 and "could not be loaded again" in lost.text
        assert "vanishing" not in names(server)
        assert httpx.get(server.url + "/v1/models/vanishing").status_code == 503
        body = {"lora_name": "vanishing", "model": "late"}
        assert httpx.post(server.url + "/v1/unload_lora_adapter", json=body).status_code == 200
        assert httpx.get(server.url + "/v1/models/vanishing").status_code == 404


def test_a_name_means_one_adapter_of_all_models(serve, root, tmp_path):
    """Whoever loads one learns that the name is taken; without "model" the one that has it is meant."""
    first, second = (tiny_model.write(tmp_path / "models" / name, seed) for seed, name in enumerate(["first", "second"]))
    with serve(str(second), "--context", "256", "--adapter-root", str(root), "--adapter", f"x@second={root}/one",
               model=first) as server:
        text = answer(server, "x")
        taken = load(server, "x", "two", model="first")
        assert taken.status_code == 400
        assert "lora_name is the name of an adapter of 'second', but it must be another name" in taken.text
        assert answer(server, "x") == text and names(server)["x"]["parent"] == "second"
        assert "already been loaded" in load(server, "x", "two").text
        assert load(server, "x", "two", load_inplace=True).status_code == 200
        assert answer(server, "x") != text and names(server)["x"]["parent"] == "second"
        assert unload(server, "x").status_code == 200
        assert "x" not in names(server) and unload(server, "x").status_code == 404
        assert load(server, "x", "two").status_code == 200
        assert names(server)["x"]["parent"] == "first"


@pytest.mark.parametrize("adapters", ["x={0}/one,x@late={0}/two", "x@late={0}/one,x@late={0}/two", "late={0}/one",
                                      "usual@late={0}/one"])
def test_names_of_the_command_line_are_taken_once(model, root, tmp_path, adapters):
    tiny_model.write(tmp_path / "late")
    ended = subprocess.run([kBinary, "serve", str(model), "--port", "0", "--context", "256", "--alias", "usual", "--on-demand",
                            str(tmp_path / "late"), "--adapter", adapters.format(root)],
                           capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0 and "but a model or another adapter is called" in ended.stderr
