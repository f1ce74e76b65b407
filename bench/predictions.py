#!/usr/bin/env python3
"""How many points of models the forecast meets within 15 %, and which of its terms is wrong at the others.

bench/predictions.py MODEL... [--activations exact,fast] [--prefill 128,512,2048] [--depth 0,512,2048] [--batch 4,16]
                     [--repeats 3] [--json FILE]

Runs `headrace bench step` over each MODEL with each arithmetic; a point's forecast is what is expected of it from ops that
the same run measures alone, and it is met where measured and expected speed differ by at most a factor of 1.15. Of points
that are off, `bench step` records every op of one more run: the term that is farthest from what is expected of it is
named. Needs an idle machine. Prints the rows, with the share of the limit beside, then the count by term.
"""

import argparse
import collections
import json
import subprocess
import sys
from pathlib import Path

kRepository = Path(__file__).resolve().parents[1]
kSizes = {"prefill": "tokens", "decode": "depth", "batch": "sequences"}


def measure(given, model, activations):
    command = [str(given.binary), "bench", "step", model, "--json", "--activations", activations, "--prefill", given.prefill,
               "--depth", given.depth, "--batch", given.batch, "--repeats", str(given.repeats)]
    if given.threads:
        command += ["--threads", str(given.threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=given.timeout, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stderr.strip()}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [{"model": Path(model).stem, "activations": activations, **row} for row in rows if row["kind"] in kSizes]


def line_of(row):
    times = ""
    if not row["near_forecast"]:
        times = "; ".join(f"{name} {time['ms']:.3g} ms" + (f" for {time['expected_ms']:.3g}" if time["expected_ms"] else "")
                          for name, time in row["terms"].items())
    cells = [row["model"], row["activations"], f"{row['kind']} {row[kSizes[row['kind']]]}", f"{row['tok_s']:.1f}",
             f"{row['expected_tok_s']:.1f}", f"{row['tok_s'] / row['expected_tok_s']:.2f}", f"{row['share']:.2f}", row.get("wrong_term", ""), times]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--activations", default="exact,fast")
    parser.add_argument("--prefill", default="128,512,2048")
    parser.add_argument("--depth", default="0,512,2048")
    parser.add_argument("--batch", default="4,16")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", help="a file for all rows")
    parser.add_argument("--binary", default=kRepository / "build/release/bin/headrace")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of each run")
    given = parser.parse_args()
    head = ["model", "activations", "point", "tok/s", "expected", "ratio", "share of limit", "wrong term", "times of the terms"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    rows = []
    for model in given.models:
        for activations in given.activations.split(","):
            found = measure(given, model, activations)
            print("\n".join(map(line_of, found)), flush=True)
            rows += found
            if given.json:
                Path(given.json).write_text(json.dumps(rows, indent=1))
    near = sum(row["near_forecast"] for row in rows)
    wrong = collections.Counter(row["wrong_term"] for row in rows if not row["near_forecast"])
    print(f"\n{near} of {len(rows)} points ({100 * near / len(rows):.0f} %) within 15 %; "
          "wrong elsewhere: " + (", ".join(f"{name} {count}" for name, count in wrong.most_common()) or "nothing"))


if __name__ == "__main__":
    main()
