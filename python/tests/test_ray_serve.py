"""The deployment in a local Ray Serve: HTTP of the server's dialects, handles, streams, health."""

import asyncio
import http.client
import json
import os
import time

import pytest

ray = pytest.importorskip("ray", reason="ray is not installed")
from headrace.ray_serve import HeadraceDeployment, app  # noqa: E402
from ray import serve  # noqa: E402


@pytest.fixture(scope="module")
def handle(folder, tmp_path_factory):
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=128 << 20, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": 8765})
    yield serve.run(app({"model": str(folder), "context": 512, "threads": 1}), name="llm", route_prefix="/llm")
    serve.shutdown()
    ray.shutdown()


def request(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", 8765, timeout=120)
    connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
    return connection.getresponse()


def test_http(handle, llm):
    body = {"prompt": "abc", "max_tokens": 6, "temperature": 0}
    response = request("POST", "/llm/v1/completions", body)
    shown = json.loads(response.read())
    assert response.status == 200 and response.headers["content-type"].startswith("application/json")
    assert shown["choices"][0]["text"] == llm.generate("abc", max_tokens=6, temperature=0).text
    assert request("GET", "/llm/v1/models").status == 200


def test_http_streams(handle, llm):
    response = request("POST", "/llm/v1/completions",
                       {"prompt": "abc", "max_tokens": 300, "temperature": 0, "ignore_eos": True, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    first = response.readline()
    assert first.startswith(b"data: {")
    events = [line for line in (first + response.read()).split(b"\n\n") if line]
    assert events[-1] == b"data: [DONE]"
    text = "".join(json.loads(event[6:])["choices"][0]["text"] for event in events[:-1])
    assert text == llm.generate("abc", max_tokens=300, temperature=0, ignore_eos=True).text


def test_http_errors(handle):
    response = request("POST", "/llm/v1/completions", {"prompt": "abc", "temperature": -1})
    assert response.status == 400 and json.loads(response.read())["error"]["param"] == "temperature"
    assert request("POST", "/llm/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "x"}).status == 404
    assert request("DELETE", "/llm/api/delete", {"model": "x"}).status == 404


def test_handles(handle, llm):
    answer = handle.generate.remote("abc", max_tokens=6, temperature=0).result()
    assert answer.text == llm.generate("abc", max_tokens=6, temperature=0).text
    pieces = list(handle.options(stream=True).stream.remote("abc", max_tokens=6, temperature=0))
    assert "".join(piece.text for piece in pieces) == answer.text
    assert handle.embed.remote("abc").result() == llm.embed("abc")


def test_requests_run_together(handle, llm):
    responses = [handle.generate.remote(f"prompt {i}", max_tokens=8, temperature=0) for i in range(16)]
    texts = [llm.generate(f"prompt {i}", max_tokens=8, temperature=0).text for i in range(16)]
    assert [response.result().text for response in responses] == texts


def test_clients_that_leave_are_cancelled(handle):
    connection = http.client.HTTPConnection("127.0.0.1", 8765, timeout=120)
    body = {"prompt": "abc", "max_tokens": 480, "ignore_eos": True, "stream": True, "n": 8}
    connection.request("POST", "/llm/v1/completions", json.dumps(body), {"content-type": "application/json"})
    connection.getresponse().readline()
    connection.close()
    end = time.monotonic() + 30
    while handle.num_running.remote().result() > 0:
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.1)


def test_the_command_line_of_ray_builds_it(folder):
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary as build

    application = build(app, {"model": str(folder), "num_replicas": "2", "context": "256"})
    bound = application._bound_deployment
    assert bound.num_replicas == 2 and bound.init_args == (str(folder),) and bound.init_kwargs == {"context": "256"}


def test_health(folder):
    replica = HeadraceDeployment.func_or_class(str(folder), context=256, threads=1)
    replica.check_health()
    replica.llm.close()
    with pytest.raises(RuntimeError):
        replica.check_health()
    assert asyncio.iscoroutinefunction(replica.generate)
