#!/usr/bin/env python3
"""`headrace lab tune` beside an exhaustive sweep of the options that it chooses among.

bench/tune_sweep.py MODEL... [--goals ttft,throughput] [--rounds 5] [--confirm 0] [--out tune-sweep.json]

The sweep runs every combination of --kv-type, --activations, --threads and --batch-tokens, each once a round, in an order that a seed shuffles anew for each round, with the command that lab tune runs; a
configuration counts with the median of its speeds relative to the round's median, so that a machine's slow minutes meet
all alike. Then lab tune runs in a laboratory of its own. For each model and goal the table says the best configuration of
the sweep, the one that tune recommends, what that loses, and the share of the sweep's time that tune took; --full prints
every configuration. The best of many by few rounds is a lucky one: --confirm N runs it and the recommended one N times more, in
turns, and adds the median of their ratio with its 95 % interval by rank. Everything is kept in --out after each round, and a run that finds the file goes on from there; one
that ends early by --budget prints no table. Needs an idle machine.
"""

import argparse
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

kRepository = Path(__file__).resolve().parents[1]
kDefaults = {"kv-type": "auto", "activations": "exact", "batch-tokens": "512"}
kPoints = {"ttft": ["--prefill", "512", "--depth", "", "--batch", ""],
           "throughput": ["--prefill", "", "--depth", "", "--batch", "16"]}


def configurations():
    cores = len(os.sched_getaffinity(0))
    values = {"kv-type": ["auto", "fp8", "int8"], "activations": ["exact", "fast"], "batch-tokens": ["256", "512", "1024"],
              "threads": [str(1 << i) for i in range(16) if 1 << i < cores] + [str(cores)]}
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def name_of(options):
    """The same for equal settings, whether they are said or left to the defaults."""
    whole = {**kDefaults, "threads": str(len(os.sched_getaffinity(0))), **options}
    return " ".join(f"{name}={whole[name]}" for name in sorted(whole))


class Sweep:
    def __init__(self, given):
        self.given, self.path = given, Path(given.out)
        self.end = time.monotonic() + given.budget if given.budget else float("inf")
        self.kept = json.loads(self.path.read_text()) if self.path.exists() else {}

    def keep(self):
        self.path.write_text(json.dumps(self.kept, indent=1))

    def confirm(self, model, goal, kept):
        """The recommended configuration beside the sweep's best, both in turns, every other time in reverse."""
        speeds = relative_speeds(kept["rounds"])
        both = [max(speeds, key=speeds.get), name_of(recommended(kept["tune"]["file"]))]
        pairs = kept.setdefault("confirmed", [])
        while both[0] != both[1] and len(pairs) < self.given.confirm:
            self.check_time()
            found = {}
            for name in both if len(pairs) % 2 else reversed(both):
                found[name] = self.run_once(model, goal, dict(word.split("=") for word in name.split()))[0]
            pairs.append([found[name] for name in both])
            self.keep()

    def check_time(self):
        if time.monotonic() > self.end:
            sys.exit(f"the time is over: run it again with --out {self.path} to go on")

    def run_once(self, model, goal, options):
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        command = [str(self.given.binary), "bench", "step", model, "--json", "--bare", "--repeats", "1", *kPoints[goal], *words]
        begin = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}:\n{done.stderr.strip()}")
        return json.loads(done.stdout.splitlines()[-1])["tok_s"], time.monotonic() - begin

    def sweep(self, model, goal):
        kept = self.kept.setdefault(f"{Path(model).stem} {goal}", {"rounds": [], "seconds": 0, "tune": None})
        while len(kept["rounds"]) < self.given.rounds:
            self.check_time()
            number = len(kept["rounds"])
            order = configurations()
            random.Random(number).shuffle(order)
            speeds, seconds = {}, 0
            for options in order:
                speeds[name_of(options)], took = self.run_once(model, goal, options)
                seconds += took
            kept["rounds"].append(speeds)
            kept["seconds"] += seconds
            self.keep()
            print(f"{Path(model).stem} {goal}: round {number + 1} of {self.given.rounds} in {seconds:.0f} s", file=sys.stderr)
        return kept

    def tune(self, model, goal, kept):
        if kept["tune"]:
            return
        self.check_time()
        with tempfile.TemporaryDirectory() as folder:
            command = [str(self.given.binary), "lab", "tune", str(Path(model).resolve()), "--goal", goal, "--lab", f"{folder}/lab",
                       "--by", "tune_sweep", *(["--idle-patience", "0", "--idle-share", "1"] if self.given.busy else [])]
            begin = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}:\n{done.stderr.strip()}")
            exported = subprocess.run([str(self.given.binary), "lab", "export", "--json", "--lab", f"{folder}/lab"],
                                      capture_output=True, text=True, check=True)
            runs = sum(len(each["runs"]) for each in json.loads(exported.stdout)["experiments"])
            kept["tune"] = {"seconds": time.monotonic() - begin, "runs": runs, "file": done.stdout}
        self.keep()


def recommended(text):
    lines = [line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name.strip(): value.strip().strip('"') for name, value in lines}


def relative_speeds(rounds):
    """Of each configuration: the median over the rounds of its speed beside the median of the round."""
    found = {}
    for speeds in rounds:
        middle = statistics.median(speeds.values())
        for name, speed in speeds.items():
            found.setdefault(name, []).append(speed / middle)
    return {name: statistics.median(values) for name, values in found.items()}


def confirmed(each):
    """Median of the ratios, and the ranks of the binomial distribution that hold it in 95 %."""
    ratios = sorted(chosen / best for best, chosen in each.get("confirmed", []))
    if not ratios:
        return "-"
    outside = 0
    while sum(math.comb(len(ratios), i) for i in range(outside + 1)) <= 0.025 * 2 ** len(ratios):
        outside += 1
    low = max(outside - 1, 0)
    return f"{statistics.median(ratios):.3f} ({ratios[low]:.3f}-{ratios[-1 - low]:.3f}, {len(ratios)} pairs)"


def report(kept, full):
    print("| model, goal | best of the sweep | recommended | of the best | confirmed | sweep | tune | share of the time |")
    print("|---|---|---|---|---|---|---|---|")
    for name, each in kept.items():
        speeds = relative_speeds(each["rounds"])
        best = max(speeds, key=speeds.get)
        chosen = name_of(recommended(each["tune"]["file"]))
        num_runs = sum(map(len, each["rounds"]))
        print(f"| {name} | {best} | {chosen} | {speeds[chosen] / speeds[best]:.3f} | {confirmed(each)} | {num_runs} runs, {each['seconds']:.0f} s "
              f"| {each['tune']['runs']} runs, {each['tune']['seconds']:.0f} s | {each['tune']['seconds'] / each['seconds']:.2f} |")
    for name, each in kept.items() if full else []:
        speeds = relative_speeds(each["rounds"])
        print(f"\n{name}, speed beside the defaults:\n")
        for options in sorted(speeds, key=speeds.get, reverse=True):
            print(f"    {speeds[options] / speeds[name_of({})]:.3f}  {options}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--goals", default="ttft,throughput")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--confirm", type=int, default=0, metavar="N", help="runs of the best and of the recommended one, beside each other")
    parser.add_argument("--out", default="tune-sweep.json")
    parser.add_argument("--budget", type=float, default=0, help="seconds after which nothing new begins; 0: no limit")
    parser.add_argument("--full", action="store_true", help="print every configuration")
    parser.add_argument("--busy", action="store_true", help="tune neither waits for an idle machine nor repeats runs beside others")
    parser.add_argument("--binary", default=kRepository / "build/release/bin/headrace")
    given = parser.parse_args()
    sweep = Sweep(given)
    for model in given.models:
        for goal in given.goals.split(","):
            kept = sweep.sweep(model, goal)
            sweep.tune(model, goal, kept)
            sweep.confirm(model, goal, kept)
    report(sweep.kept, given.full)


if __name__ == "__main__":
    main()
