"""Several models in one process: by name, on demand, asleep when idle."""

import concurrent.futures
import shutil
import time

import httpx
import pytest

import tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models to be found in a folder."""
    models = tmp_path_factory.mktemp("models")
    first = tiny_model.write(models / "first")
    shutil.copytree(first, models / "second", dirs_exist_ok=True)
    return models


def ask(server, model, prompt="Hello", **more):
    body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, **more}
    return httpx.post(server.url + "/v1/completions", json=body)


def states(server):
    listed = httpx.get(server.url + "/v1/models").json()["data"]
    return {model["id"]: model.get("status", {"value": "stays"})["value"] for model in listed}


def test_models_of_the_command_line(serve, folder):
    with serve(str(folder / "second"), "--context", "256", model=folder / "first") as server:
        assert states(server) == {"first": "stays", "second": "stays"}
        texts = {name: ask(server, name).json() for name in ("first", "second")}
        # The same weights give the same text, whichever engine computes it.
        assert texts["first"]["choices"][0]["text"] == texts["second"]["choices"][0]["text"]
        assert texts["second"]["model"] == "second"
        missing = ask(server, "third")
        assert missing.status_code == 404 and "'first', 'second'" in missing.json()["error"]["message"]
        # Both at once: turns of one team.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: ask(server, ("first", "second")[i % 2]).json(), range(24)))
        assert {answer["choices"][0]["text"] for answer in answers} == {texts["first"]["choices"][0]["text"]}


def test_on_demand_loads_and_sleeps(serve, folder):
    with serve("--context", "256", "--on-demand", str(folder), "--keep-alive", "1") as server:
        assert states(server)["second"] == "asleep"
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask(server, "second"), range(4)))
        assert {answer.status_code for answer in answers} == {200}
        assert states(server)["second"] == "awake" and states(server)["first"] == "asleep"
        text = answers[0].json()["choices"][0]["text"]
        end = time.monotonic() + 60
        while states(server)["second"] != "asleep":
            assert time.monotonic() < end, "it does not sleep"
            time.sleep(0.1)
        assert ask(server, "second").json()["choices"][0]["text"] == text
        assert server.stop() == 0


def test_the_administrator_wakes_and_puts_to_sleep(serve, folder, tmp_path):
    path = str(tmp_path / "admin.sock")
    with serve("--context", "256", "--on-demand", str(folder), "--admin-socket", path) as server:
        with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://admin", timeout=60) as admin:
            assert admin.post("/wake", json={"model": "second"}).status_code == 204
            assert states(server)["second"] == "awake"
            assert admin.post("/sleep", json={"model": "second"}).status_code == 204
            end = time.monotonic() + 60
            while states(server)["second"] != "asleep":
                assert time.monotonic() < end, "it does not sleep"
                time.sleep(0.05)
            states_told = {each["model"]: each["stays"] for each in admin.get("/models").json()["models"]}
            assert states_told["first"] is False and True in states_told.values()
            assert admin.post("/sleep", json={"model": "absent"}).status_code == 404
            staying = next(name for name, stays in states_told.items() if stays)
            assert admin.post("/sleep", json={"model": staying}).status_code == 400


def test_too_large_a_model_is_told(serve, folder):
    with serve("--context", "256", "--on-demand", str(folder), "--on-demand-memory", "1") as server:
        refused = ask(server, "second")
        assert refused.status_code == 400 and "the limit for models" in refused.json()["error"]["message"]
        assert ask(server, None).status_code == 200


def test_a_sleeping_model_is_not_loaded_to_let_go_of_it(serve, folder):
    with serve("--context", "256", "--on-demand", str(folder), "--on-demand-memory", "1") as server:
        def let_go(name):
            return httpx.post(server.url + "/api/generate", json={"model": name, "keep_alive": 0, "stream": False})

        gone = let_go("second")
        assert gone.status_code == 200 and gone.json()["done_reason"] == "unload"
        assert states(server)["second"] == "asleep"
        assert let_go("absent").status_code == 404


def test_one_that_lacks_what_the_options_say_goes_without(serve, folder, tmp_path):
    """A context that it was not made for, a draft model of another vocabulary."""
    short = tiny_model.write(tmp_path / "short", context=128)
    other = tiny_model.write(tmp_path / "other", fills=True)
    with serve("--context", "256", "--speculation", "off", "--on-demand", f"{short},{other}",
               model=folder / "first") as server:
        expected = {name: ask(server, name).json()["choices"] for name in ("first", "short", "other")}
        listed = {model["id"]: model for model in httpx.get(server.url + "/v1/models").json()["data"]}
        assert {name: listed[name]["max_model_len"] for name in listed} == {"first": 256, "short": 128, "other": 256}
    with serve("--context", "256", "--on-demand", f"{short},{other}", "--draft-model", str(folder / "first"),
               model=folder / "first") as server:
        for name, choices in expected.items():
            answer = ask(server, name)
            assert answer.status_code == 200, answer.text
            assert answer.json()["choices"] == choices
        assert server.stop() == 0
