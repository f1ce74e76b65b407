"""What a flood of one key does to another: its time to the first token alone, and beside one that asks a hundred times as much.

    .venv/bin/python bench/tenants.py MODEL [--clients 1] [--flood 100] [--prompts 40,400] [--answer 8] [--sequences 16]
                                      [--seconds 20] [--rounds 3] [--binary build/release/bin/headrace]

On an idle machine. One server, two keys of equal weight; `headrace bench serve` asks with each (closed loop: each client asks
again when it has its answer), prompts of both equally long. Prints one JSON object: for each length of prompt the 95th
percentiles alone and beside the flood, their ratio (medians over the rounds; the rounds' ratios besides), how many answers were
measured, alone and beside, and the tokens per second of all answers, with those of the flood.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

from local_server import LocalServer, load_command, stage_of


seeds = itertools.count(1)  # no prompt twice: it would be cached


def make_key(binary, name):
    """Line of the key file, and key."""
    done = subprocess.run([binary, "key", name, "--scopes", "inference,metrics"], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.removeprefix("key: ").strip()


@contextlib.contextmanager
def flood(command):
    """While the block lasts; it must not end before."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(4)
        yield
        if running.poll() is not None:
            raise SystemExit(f"the flood ended early, with status {running.returncode}")
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()


def measure(server, keys, prompt, given):
    def load(name, clients, seconds):
        return load_command(given.binary, server.url, clients, prompt, given.answer, seconds, "--api-key", keys[name][1], "--seed",
                            next(seeds))

    def all_tokens():
        return server.metrics(keys["loud"][1])["vllm:generation_tokens_total"]

    rounds, speeds = [], []
    for _ in range(given.rounds):
        alone = stage_of(load("quiet", given.clients, given.seconds))
        with flood(load("loud", given.clients * given.flood, 10 * given.seconds + 60)):
            tokens, began = all_tokens(), time.monotonic()
            rounds.append((alone, stage_of(load("quiet", given.clients, given.seconds))))
            speeds.append((all_tokens() - tokens) / (time.monotonic() - began))
        time.sleep(2)  # the flood's answers end
    p95 = [[stage["ttft_ms"]["p95"]["value"] for stage in pair] for pair in rounds]
    return {"alone_p95_ms": statistics.median(alone for alone, _ in p95),
            "beside_p95_ms": statistics.median(beside for _, beside in p95),
            "ratio": statistics.median(beside / alone for alone, beside in p95),
            "ratios": [round(beside / alone, 2) for alone, beside in p95],
            "answers": [[stage["answered"] for stage in pair] for pair in rounds],
            "all_tokens_per_s": round(statistics.median(speeds), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--flood", type=int, default=100)
    parser.add_argument("--prompts", default="40,400")
    parser.add_argument("--answer", type=int, default=8)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", default="build/release/bin/headrace")
    given = parser.parse_args()
    keys = {name: make_key(given.binary, name) for name in ("quiet", "loud")}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "keys")
        file.write_text("".join(line for line, _ in keys.values()), encoding="utf-8")
        waiting = 4 * given.clients * given.flood  # a client has three of four places
        with LocalServer(given.binary, given.model, "--api-key-file", file, "--max-sequences", given.sequences, "--max-waiting",
                         waiting) as server:
            print(json.dumps({prompt: measure(server, keys, int(prompt), given) for prompt in given.prompts.split(",")}, indent=1))


if __name__ == "__main__":
    main()
