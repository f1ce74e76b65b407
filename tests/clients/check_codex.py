"""The Codex command line: a whole turn with its own tools, over the Responses API."""

import os
import subprocess

import pytest

from conftest import http_support, kFolder, tiny_model

kCall = '\n<tool_call>\n{"name": "exec_command", "arguments": {"cmd": "echo painted > wall"}}'
kScript = tiny_model.Script({">": ["I look.", kCall, "\n</tool_call>"], "}": ["All ", "done."], "]": ["Plain ", "text."]})
kConfig = """model = "script"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "{}/v1"
wire_api = "responses"
"""


@pytest.fixture
def server(tmp_path):
    """What it says of itself and its tools is some 28,000 bytes, each of them a token here."""
    model = tiny_model.write(tmp_path / "script", context=65536, template=tiny_model.kScriptTemplate, script=kScript)
    running = http_support.Server(model, "--context", "65536")
    yield running
    running.stop()


def test_codex_runs_a_command_and_answers(server, tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(kConfig.format(server.url))
    command = [kFolder / "node/node_modules/.bin/codex", "exec", "--skip-git-repo-check",
               "--dangerously-bypass-approvals-and-sandbox", "Paint the wall."]
    result = subprocess.run(command, cwd=work, env={**os.environ, "HOME": str(tmp_path), "CODEX_HOME": str(home)},
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip().endswith("All done.")
    assert (work / "wall").read_text() == "painted\n"
