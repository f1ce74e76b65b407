"""Wide tests of clients as they come from PyPI and npm (make test-clients), against a real `headrace serve`.

The model is tiny and has random weights: what it says is noise, unless its answer is held to a form. Files are called
check_*.py, so that the ordinary suites do not collect them.
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

kName = "tiny"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("model") / kName, context=8192, template=tiny_model.kToolTemplate)


@pytest.fixture(scope="session")
def server(folder):
    running = http_support.Server(folder, "--context", "8192", "--alias", "gpt-4o-mini")
    try:
        yield running
        assert running.process.poll() is None, "the server died:\n" + "".join(running.errors)
    finally:
        running.stop()


@pytest.fixture(scope="session")
def base_url(server):
    return server.url + "/v1"
