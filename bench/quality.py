#!/usr/bin/env python3
"""What a format, an arithmetic or a storage of keys and values costs in quality, and buys in speed and memory.

bench/quality.py MODEL[=REFERENCE]... [--activations exact,fast] [--kv-types f16,int8] [--text FILE] [--json FILE]

Each MODEL is compared with its REFERENCE (without one: itself) in exact arithmetic with keys and values in f32, by
`headrace eval compare`: perplexity, mean distance of the log-probs of the text's tokens, Kullback-Leibler divergence of
the whole distributions, and how often both have the same best token. Beside them: speed and memory by `headrace bench
step`: speeds are the median of --repeats with the slowest and the fastest, and need an idle machine; of memory, the packed
weights and the keys and values of a sequence of --step-prefill tokens. Settings other than the first of each list are tried
one at a time. Intervals are of 95 %, by bootstrap over the windows of the text. The text is by default what Python ships
as the help of its language (pydoc_data.topics).
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

kRepository = Path(__file__).resolve().parents[1]


def default_text():
    from pydoc_data import topics

    return "\n".join(text for _, text in sorted(topics.topics.items()))


def variants(activations, kv_types):
    """The first of each, then every other by itself."""
    first = (activations[0], kv_types[0])
    return [first, *((each, first[1]) for each in activations[1:]), *((first[0], each) for each in kv_types[1:])]


def interval(values, seed=1, resamples=2000):
    """Mean of the values, and the bounds between which it lies for 95 of 100 texts like this one."""
    chance = random.Random(seed)
    mean = sum(values) / len(values)
    means = sorted(sum(chance.choices(values, k=len(values))) / len(values) for _ in range(resamples))
    return mean, means[int(0.025 * resamples)], means[int(0.975 * resamples)]


class Program:
    def __init__(self, binary, timeout):
        self.binary, self.timeout = str(binary), timeout

    def lines(self, *arguments):
        """What it prints with --json; ends this program with its error."""
        command = [self.binary, *map(str, arguments), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.timeout, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}:\n{done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def measure(program, given, model, reference, activations, kv_type, text):
    setting = ["--activations", activations, "--kv-type", kv_type]
    compared, = program.lines("eval", "compare", model, text, "--reference", reference, "--window", given.window,
                              "--windows", given.windows, *setting)
    load, *points = program.lines("bench", "step", model, "--bare", "--prefill", given.step_prefill, "--depth", 0, "--batch", "",
                                  "--repeats", given.repeats, *setting)
    speed = {point["kind"]: (point["tok_s"], point["tok_s_low"], point["tok_s_high"]) for point in points}
    row = {"model": model, "reference": reference, "activations": activations, "kv_type": kv_type,
           "tokens_scored": compared["tokens_scored"], "perplexity": compared["perplexity"],
           "reference_perplexity": compared["reference_perplexity"], "prefill_tok_s": speed["prefill"],
           "decode_tok_s": speed["decode"], "weight_bytes": load["packed_bytes"], "kv_bytes": load["kv_bytes"]}
    for name in ("difference", "divergence", "same_best"):
        row[name] = interval([each[name] for each in compared["windows"]])
    row["added_nll"] = interval([each["nll"] - each["reference_nll"] for each in compared["windows"]])
    return row


def table(rows):
    head = ["model", "activations", "KV", "perplexity", "added nats", "log-prob distance", "KL", "same best", "prompt tok/s",
            "answer tok/s", "weights MB", "KV MB"]
    lines = [head]
    for row in rows:
        spread = {name: "{:.5f} ({:.5f} to {:.5f})".format(*row[name]) for name in ("added_nll", "difference", "divergence")}
        lines.append([Path(row["model"]).name, row["activations"], row["kv_type"], f"{row['perplexity']:.3f}",
                      spread["added_nll"], spread["difference"], spread["divergence"],
                      f"{100 * row['same_best'][0]:.1f} %", "{:.0f} ({:.0f} to {:.0f})".format(*row["prefill_tok_s"]),
                      "{:.1f} ({:.1f} to {:.1f})".format(*row["decode_tok_s"]), f"{row['weight_bytes'] / 1e6:.1f}",
                      f"{row['kv_bytes'] / 1e6:.2f}"])
    lines.insert(1, ["---"] * len(head))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[=REFERENCE]")
    parser.add_argument("--activations", default="exact,fast", help="the first is what the others are tried beside")
    parser.add_argument("--kv-types", default="f16,int8,fp8", help="likewise")
    parser.add_argument("--text", help="a file; default: the help of Python's language")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window")
    parser.add_argument("--windows", type=int, default=16, help="windows at most; 0: all")
    parser.add_argument("--step-prefill", type=int, default=256, help="tokens of the prompt that is timed")
    parser.add_argument("--repeats", type=int, default=3, help="of each speed")
    parser.add_argument("--json", help="a file for all rows")
    parser.add_argument("--binary", default=kRepository / "build/release/bin/headrace")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of each run")
    given = parser.parse_args()
    program = Program(given.binary, given.timeout)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        text = given.text or Path(folder) / "text.txt"
        if not given.text:
            text.write_text(default_text())
        for named in given.models:
            model, _, reference = named.partition("=")
            for activations, kv_type in variants(given.activations.split(","), given.kv_types.split(",")):
                rows.append(measure(program, given, model, reference or model, activations, kv_type, text))
                print(f"{model} {activations} {kv_type}: done", file=sys.stderr)
                if given.json:
                    Path(given.json).write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
