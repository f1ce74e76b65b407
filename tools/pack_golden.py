#!/usr/bin/env python3
"""Packs the golden folders that the repository keeps into one file: tests/data/golden/dense.tar.zst.

    python tools/pack_golden.py GOLDEN GGUFS tests/data/golden/dense.tar.zst [--limit-mib 8]

GOLDEN/tiny and GOLDEN/quant hold checkpoints with recorded results, GGUFS the files that make_tiny_ggufs.py wrote
(--type bf16). Folders whose model_type this version does not run are left out. One solid archive: the checkpoints share
most of their random weights. The same input gives the same bytes.
"""
import argparse
import io
import json
import pathlib
import subprocess
import sys
import tarfile

from make_tiny_ggufs import ARCHITECTURES

FILES = ("config.json", "config.v5.json", "expect.json", "expect.safetensors", "model.safetensors")


def chosen_files(golden, ggufs):
    """(name in the archive, path), sorted so that files that resemble each other are neighbours."""
    files = []
    for kind in ("tiny", "quant"):
        for folder in sorted((golden / kind).iterdir()):
            config = json.loads((folder / "config.json").read_text())
            if config["model_type"] in ARCHITECTURES:
                files += [(f"{kind}/{folder.name}/{name}", folder / name) for name in FILES if (folder / name).exists()]
    files += [(f"gguf/{path.name}", path) for path in sorted(ggufs.glob("*.gguf"))]
    return sorted(files, key=lambda file: (pathlib.PurePath(file[0]).name, file[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=pathlib.Path)
    parser.add_argument("ggufs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--limit-mib", type=float, default=8)
    options = parser.parse_args()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, path in chosen_files(options.golden, options.ggufs):
            info = tarfile.TarInfo(name)
            data = path.read_bytes()
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    size = len(archive.getvalue())
    packed = subprocess.run(["zstd", "-19", "--long=27", f"--stream-size={size}", "-q", "-c"], input=archive.getvalue(),
                            stdout=subprocess.PIPE, check=True).stdout
    if len(packed) > options.limit_mib * 2**20:
        sys.exit(f"{len(packed)} bytes packed, but at most {options.limit_mib} MiB are allowed")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(packed)
    print(f"{size} bytes packed into {len(packed)}")


if __name__ == "__main__":
    main()
