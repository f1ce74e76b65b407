"""npm packages (node/*.test.mjs), against a real server: each test of theirs counts by its name."""

import os
import re
import subprocess
from pathlib import Path

import pytest

kFolder = Path(__file__).parent / "node"


@pytest.mark.parametrize("file", sorted(path.name for path in kFolder.glob("*.test.mjs")))
def test_npm_packages(server, file, subtests):
    result = subprocess.run(["node", "--test", "--test-reporter=tap", file], cwd=kFolder, capture_output=True, text=True,
                            timeout=600, env={**os.environ, "HEADRACE_URL": server.url})
    verdicts = re.findall(r"^(ok|not ok) \d+ - (.*)$", result.stdout, re.M)
    assert verdicts, result.stdout + result.stderr
    for verdict, name in verdicts:
        with subtests.test(name):
            assert verdict == "ok", result.stdout[-8000:]
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
