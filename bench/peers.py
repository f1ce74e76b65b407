#!/usr/bin/env python3
"""headrace beside llama.cpp: the same weights and the same work, interleaved in one run.

    python bench/peers.py --bench build/release/bin/bench_step MODEL.gguf [MODEL.gguf ...]

Needs the PyPI package llama-cpp-python, built for this machine, in the Python that runs it (`make bench`
makes a private environment for it). Each round runs both sides once as a process of its own; the table
holds medians over the rounds and a bootstrap interval of the ratio.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys

PEER = """
import json, sys, time
from llama_cpp import Llama
path, prefill, decode, depth, threads = sys.argv[1], *map(int, sys.argv[2:6])
llm = Llama(path, n_ctx=max(prefill, depth + decode) + 64, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
vocab, state = llm.n_vocab(), 12345
def ids(n):
    out, s = [], state
    for _ in range(n):
        s = (s * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((s >> 33) % vocab)
    return out
def timed_prefill():
    llm.reset()
    t = time.perf_counter()
    llm.eval(ids(prefill))
    return prefill / (time.perf_counter() - t)
def timed_decode():
    llm.reset()
    llm.eval(ids(max(depth, 1)))
    token = llm.sample(temp=0.0)
    t = time.perf_counter()
    for _ in range(decode):
        llm.eval([token])
        token = llm.sample(temp=0.0)
    return decode / (time.perf_counter() - t)
timed_decode()
print(json.dumps(dict(prefill_tok_s=timed_prefill(), decode_tok_s=timed_decode())))
"""


def last_json(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def bootstrap_ratio(ours, theirs, draws=2000):
    """95 % interval of the ratio of medians."""
    generator = random.Random(1)
    ratios = sorted(
        statistics.median(generator.choices(ours, k=len(ours))) / statistics.median(generator.choices(theirs, k=len(theirs)))
        for _ in range(draws))
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws)]


def compare(model, arguments):
    work = [str(arguments.prefill), str(arguments.decode), str(arguments.depth), str(arguments.threads)]
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(last_json([arguments.bench, model, "--prefill", work[0], "--decode", work[1], "--depth", work[2],
                               "--threads", work[3], "--repeats", "1"]))
        theirs.append(last_json([sys.executable, "-c", PEER, model, *work]))
    for what in ("prefill_tok_s", "decode_tok_s"):
        a, b = [r[what] for r in ours], [r[what] for r in theirs]
        low, high = bootstrap_ratio(a, b)
        print(f"| {os.path.basename(model)} | {what} | {statistics.median(a):.1f} | {statistics.median(b):.1f} | "
              f"{statistics.median(a) / statistics.median(b):.2f} ({low:.2f}-{high:.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--bench", required=True, help="the bench_step program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    print("| model | work | headrace | llama.cpp | ratio (95 %) |\n|---|---|---|---|---|")
    for model in arguments.models:
        compare(model, arguments)


if __name__ == "__main__":
    main()
