#!/usr/bin/env python3
"""Packs the recorded results that the repository keeps: OUT/families.tar.zst, ggufs.tar.zst, recorded.tar.zst.

    python tools/pack_golden.py GOLDEN GGUFS tests/data/golden [--limit-mib 16] [--only ggufs,recorded]

families: the checkpoints of GOLDEN/tiny and GOLDEN/quant and the adapters of GOLDEN/lora, with their results. ggufs: the
files of GGUFS, which make_tiny_ggufs.py wrote (--type bf16). recorded: results for files that tests fetch: token ids,
rendered chat templates (without the templates, which are others' work: their SHA-256 and file name instead), greedy ids,
log-probs and perplexity of real models, and the text that was scored. unseen: GOLDEN/unseen, further checkpoints.
seeds: the files of GGUFS, here those that make_model_seeds.py wrote.
Each is one solid archive, since checkpoints share most of their random weights. The same input gives the same bytes.
"""
import argparse
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile

FILES = ("config.json", "config.v5.json", "expect.json", "expect.safetensors", "model.safetensors")


def checkpoints(golden, kind):
    """Files of the folders of one kind, without what a recording may have left beside them."""
    folders = sorted(folder for folder in (golden / kind).iterdir() if folder.is_dir())
    return [(f"{kind}/{folder.name}/{name}", folder / name) for folder in folders for name in FILES
            if (folder / name).exists()]


def families(golden, _):
    adapters = [(str(path.relative_to(golden)), path) for path in sorted((golden / "lora").rglob("*")) if path.is_file()]
    files = checkpoints(golden, "tiny") + checkpoints(golden, "quant") + adapters
    return [(name, path.read_bytes()) for name, path in files]


def unseen(golden, _):
    return [(name, path.read_bytes()) for name, path in checkpoints(golden, "unseen")]


def seeds(_, folder):
    return [(f"seeds/{path.name}", path.read_bytes()) for path in sorted(folder.glob("*.json"))]


def ggufs(_, folder):
    return [(f"gguf/{path.name}", path.read_bytes()) for path in sorted(folder.glob("*.gguf"))]


def without_template(path):
    """A file of recorded renderings that names its template instead of holding it."""
    recorded = json.loads(path.read_text())
    if "template" not in recorded:
        return path.read_bytes()
    source = recorded.pop("template").encode()
    recorded = {"template_file": f"{path.stem}.jinja", "template_sha256": hashlib.sha256(source).hexdigest(), **recorded}
    return (json.dumps(recorded, ensure_ascii=False) + "\n").encode()


def recorded(golden, _):
    files = [golden / "text.txt", *sorted((golden / "tokenizers").iterdir()), *sorted((golden / "real").iterdir())]
    templates = sorted((golden / "templates").iterdir())
    return ([(str(path.relative_to(golden)), path.read_bytes()) for path in files]
            + [(f"templates/{path.name}", without_template(path)) for path in templates])


def pack(files, limit_mib, out):
    """Sorted so that files that resemble each other are neighbours."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files, key=lambda file: (pathlib.PurePath(file[0]).name, file[0])):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    size = len(archive.getvalue())
    packed = subprocess.run(["zstd", "-19", "--long=27", f"--stream-size={size}", "-q", "-c"], input=archive.getvalue(),
                            stdout=subprocess.PIPE, check=True).stdout
    if len(packed) > limit_mib * 2**20:
        sys.exit(f"{out.name}: {len(packed)} bytes packed, but at most {limit_mib} MiB are allowed")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(packed)
    print(f"{out.name}: {len(files)} files, {size} bytes packed into {len(packed)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=pathlib.Path)
    parser.add_argument("ggufs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--limit-mib", type=float, default=16)
    parser.add_argument("--only", default="families,ggufs,recorded")
    options = parser.parse_args()
    archives = {"families": families, "ggufs": ggufs, "recorded": recorded, "unseen": unseen, "seeds": seeds}
    for name in options.only.split(","):
        pack(archives[name](options.golden, options.ggufs), options.limit_mib, options.out / f"{name}.tar.zst")


if __name__ == "__main__":
    main()
