"""Wide tests of clients as they come from PyPI and npm (make test-clients), against a real `headrace serve`.

Two models are served. "tiny" has random weights: what it says is noise, unless its answer is held to a form. "script"
thinks, calls the tool "paint" of its own accord, and answers behind the result: with it agents go their whole way.
Files are called check_*.py, so that the ordinary suites do not collect them.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

kHttp = Path(__file__).resolve().parents[1] / "http"
sys.path.insert(0, str(kHttp))
_spec = importlib.util.spec_from_file_location("http_support", kHttp / "conftest.py")
http_support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(http_support)

import tiny_model  # noqa: E402

kFolder = Path(__file__).resolve().parent
kContext = 8192
kScript = tiny_model.Script({
    ">": ["<think>", "The wall is", " grey.", "</think>", "I paint.", "\n<tool_call>\n{\"name\": \"paint\", ",
          "\"arguments\": {\"colour\": \"green\", ", "\"sure\": true}}", "\n</tool_call>"],
    "}": ["It is ", "green."],
    "]": ["Plain ", "text."]})



@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return tiny_model.write(folder, context=kContext, template=tiny_model.kToolTemplate)


@pytest.fixture(scope="session")
def script_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "script"
    return tiny_model.write(folder, context=kContext, template=tiny_model.kScriptTemplate, script=kScript)


@pytest.fixture(scope="session")
def server(folder, script_folder):
    running = http_support.Server(folder, str(script_folder), "--context", str(kContext), "--alias",
                                  "gpt-4o-mini,text-embedding-3-small")
    try:
        yield running
        assert running.process.poll() is None, "the server died:\n" + "".join(running.errors)
    finally:
        running.stop()


@pytest.fixture(scope="session")
def base_url(server):
    return server.url + "/v1"
