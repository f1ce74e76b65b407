#!/usr/bin/env python3
"""headrace beside llama.cpp and OpenVINO GenAI: the same weights and the same work, interleaved in one run.

    python bench/peers.py MODEL.gguf... --headrace build/release/bin/headrace --venv build/peers

The peers live in a Python environment of their own (`make bench ARGS="--peers MODEL..."` makes it). In each
round every side runs all work once, in a process of its own, one side after another. The first table holds the
medians over the rounds, and the ratio of our median to the best peer's with a 95 % bootstrap interval; the
second each side's mean |log-prob difference| to recorded float32 results, where --golden has some for the file.
A dash is a side that cannot run the model; the reason stands below the tables.
"""
import argparse
import hashlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = {"llama.cpp": "peer_llama.py", "OpenVINO": "peer_openvino.py"}
OURS = {"headrace exact": "exact", "headrace fast": "fast"}


def make_works(arguments):
    works = [{"name": f"prefill {n}", "kind": "prefill", "tokens": n} for n in arguments.prefill]
    works += [{"name": f"decode at {d}", "kind": "decode", "sequences": 1, "depth": d, "steps": arguments.decode}
              for d in arguments.depth]
    works += [{"name": f"{s} sequences", "kind": "batch", "sequences": s, "depth": arguments.batch_depth,
               "steps": arguments.decode} for s in arguments.batch]
    return works


def run(command, timeout):
    """Standard output of a command, or the last line of what went wrong."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {timeout} s"
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        return None, lines[-1][:300] if lines else f"exit status {done.returncode}"
    return done.stdout, None


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run_headrace(model, activations, arguments):
    def numbers(values):
        return ",".join(map(str, values))
    command = [arguments.headrace, "bench", "step", model, "--json", "--repeats", "1", "--threads", str(arguments.threads),
               "--activations", activations, "--prefill", numbers(arguments.prefill), "--depth", numbers(arguments.depth),
               "--batch", numbers(arguments.batch), "--batch-depth", str(arguments.batch_depth),
               "--decode", str(arguments.decode), *arguments.headrace_options]
    text, error = run(command, arguments.timeout)
    if error:
        return {}, error
    names = {"prefill": lambda row: f"prefill {row['tokens']}", "decode": lambda row: f"decode at {row['depth']}",
             "batch": lambda row: f"{row['sequences']} sequences"}
    return {names[row["kind"]](row): row["tok_s"] for row in json_lines(text) if row["kind"] in names}, None


def headrace_distance(model, activations, golden, arguments):
    command = [arguments.headrace, "verify", "model", model, golden, "--json", "--threads", str(arguments.threads),
               "--activations", activations, *arguments.headrace_options]
    # Exit status 1 only says that greedy ids differ.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=arguments.timeout)
    found = re.findall(r"log-prob difference\| mean ([\d.e+-]+) max ([\d.e+-]+)", done.stdout)
    if not found:
        return None
    return {"mean": sum(float(mean) for mean, _ in found) / len(found), "max": max(float(top) for _, top in found)}


def run_peer(name, model, golden, arguments):
    request = {"model": os.path.abspath(model), "threads": arguments.threads, "works": make_works(arguments), "golden": golden}
    command = [str(Path(arguments.venv) / "bin/python"), str(HERE / PEERS[name]), json.dumps(request)]
    text, error = run(command, arguments.timeout)
    if error:
        return {}, None, error
    rows = json_lines(text)
    speeds = {row["work"]: row["tok_s"] for row in rows if "work" in row}
    distances = [row["distance"] for row in rows if "distance" in row]
    return speeds, distances[0] if distances else None, None


def find_golden(folder, model):
    """The recorded results whose digest is that of the file."""
    if not folder:
        return None
    with open(model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    for path in sorted(Path(folder).glob("**/*.json")):
        try:
            recorded = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError):
            continue
        if isinstance(recorded, dict) and recorded.get("sha256") == digest and "prompts" in recorded:
            return str(path)
    return None


def bootstrap_ratio(ours, theirs, draws=2000):
    """95 % interval of the ratio of medians."""
    generator = random.Random(1)
    ratios = sorted(
        statistics.median(generator.choices(ours, k=len(ours))) / statistics.median(generator.choices(theirs, k=len(theirs)))
        for _ in range(draws))
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws)]


class Comparison:
    """All figures of one model."""

    def __init__(self, model, arguments):
        self.model, self.arguments = model, arguments
        self.golden = find_golden(arguments.golden, model)
        self.speeds = {side: {} for side in arguments.sides}
        self.distances, self.errors = {}, {}

    def one_side(self, side, first):
        if side in self.errors:
            return
        if side in OURS:
            speeds, error = run_headrace(self.model, OURS[side], self.arguments)
            if first and self.golden:
                self.distances[side] = headrace_distance(self.model, OURS[side], self.golden, self.arguments)
        else:
            speeds, distance, error = run_peer(side, self.model, self.golden if first else None, self.arguments)
            if distance:
                self.distances[side] = distance
        if error:
            self.errors[side] = error
        for work, speed in speeds.items():
            self.speeds[side].setdefault(work, []).append(speed)

    def run(self):
        for number in range(self.arguments.rounds):
            for side in self.arguments.sides:
                print(f"{os.path.basename(self.model)}: round {number + 1}, {side}", file=sys.stderr, flush=True)
                self.one_side(side, number == 0)

    def ratio_text(self, side, work):
        ours = self.speeds.get(side, {}).get(work)
        peers = [self.speeds[peer][work] for peer in self.arguments.sides if peer in PEERS and work in self.speeds[peer]]
        if not ours or not peers:
            return "-"
        best = max(peers, key=statistics.median)
        low, high = bootstrap_ratio(ours, best)
        return f"{statistics.median(ours) / statistics.median(best):.2f} ({low:.2f}-{high:.2f})"

    def speed_rows(self):
        for work in (work["name"] for work in make_works(self.arguments)):
            cells = [f"{statistics.median(self.speeds[side][work]):.1f}" if work in self.speeds[side] else "-"
                     for side in self.arguments.sides]
            ratios = [self.ratio_text(side, work) for side in self.arguments.sides if side in OURS]
            yield [os.path.basename(self.model), work, *cells, *ratios]


def print_table(header, rows):
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def report(comparisons, arguments):
    ours = [side for side in arguments.sides if side in OURS]
    print_table(["model", "work, tok/s", *arguments.sides, *(f"{side.split()[-1]} / best peer (95 %)" for side in ours)],
                [row for comparison in comparisons for row in comparison.speed_rows()])
    measured = [comparison for comparison in comparisons if comparison.golden]
    if measured:
        def cell(comparison, side):
            found = comparison.distances.get(side)
            return f"{found['mean']:.5f} / {found['max']:.4f}" if found else "-"
        print_table(["model, |log-prob difference| mean / max", *arguments.sides],
                    [[os.path.basename(c.model), *(cell(c, side) for side in arguments.sides)] for c in measured])
    for comparison in comparisons:
        for side, error in comparison.errors.items():
            print(f"{os.path.basename(comparison.model)}: {side}: {error}")


def number_list(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--headrace", required=True, help="the program")
    parser.add_argument("--venv", required=True, help="Python environment with the peers' packages")
    parser.add_argument("--sides", type=lambda text: text.split(","), default=[*OURS, *PEERS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefill", type=number_list, default=[512, 2048])
    parser.add_argument("--depth", type=number_list, default=[0, 2048])
    parser.add_argument("--batch", type=number_list, default=[16])
    parser.add_argument("--batch-depth", type=int, default=128)
    parser.add_argument("--decode", type=int, default=32, help="steps of a decode")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--golden", help="folder of recorded results; those whose sha256 is the file's are used")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds of one process")
    parser.add_argument("--headrace-options", type=str.split, default=[], help="further options of our side, in one word")
    arguments = parser.parse_args()
    unknown = [side for side in arguments.sides if side not in OURS and side not in PEERS]
    if unknown or arguments.rounds < 1:
        parser.error(f"sides are {', '.join([*OURS, *PEERS])}; at least one round")
    comparisons = [Comparison(model, arguments) for model in arguments.models]
    for comparison in comparisons:
        comparison.run()
    report(comparisons, arguments)


if __name__ == "__main__":
    main()
