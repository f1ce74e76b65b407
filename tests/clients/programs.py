"""Programs of packages, run beside the interpreter that runs the tests."""

import os
import subprocess
import sys
from pathlib import Path

kEnvironment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run(name, *arguments, cwd):
    command = [str(Path(sys.executable).parent / name), *map(str, arguments)]
    result = subprocess.run(command, cwd=cwd, env=kEnvironment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result.stdout
