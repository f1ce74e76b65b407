"""npm packages (node/clients.test.mjs), against a real server."""

import os
import subprocess
from pathlib import Path

kFolder = Path(__file__).parent / "node"


def test_npm_packages(server):
    result = subprocess.run(["node", "--test", "clients.test.mjs"], cwd=kFolder, capture_output=True, text=True,
                            timeout=600, env={**os.environ, "HEADRACE_URL": server.url})
    assert result.returncode == 0, result.stdout + result.stderr
