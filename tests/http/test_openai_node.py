"""Runs the tests of the OpenAI Node SDK (node/openai.test.mjs) against a real server."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

kFolder = Path(__file__).parent / "node"


def run(*command, **options):
    return subprocess.run(command, cwd=kFolder, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def packages():
    if shutil.which("npm") is None:
        pytest.skip("the Node SDK needs npm (tools/setup.sh installs it)")
    installed = run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
    assert installed.returncode == 0, installed.stderr


def test_node_sdk(server, packages):
    result = run("node", "--test", "openai.test.mjs", env={**os.environ, "HEADRACE_URL": server.url})
    assert result.returncode == 0, result.stdout + result.stderr
    assert "# pass 8" in result.stdout or "pass 8" in result.stdout, result.stdout
