"""Tokens per second of streams that are sampled, beside the same streams greedy, in turns on one server.

    .venv/bin/python bench/sampled.py MODEL [--streams 16] [--tokens 48] [--rounds 7] [--binary build/release/bin/headrace]

On an idle machine. Prints one JSON object: medians, and the median of the ratios of neighbours in time.
"""

import argparse
import json
import statistics
import threading
import time

import httpx

from local_server import LocalServer

KINDS = {
    "greedy": {"temperature": 0},
    "temperature": {"temperature": 0.8},
    "top_p": {"temperature": 0.8, "top_p": 0.95},
    "top_k, top_p, min_p": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
}


def tokens_per_second(url, options, num_streams, num_tokens):
    def ask(number):
        body = {"prompt": f"{number} tales of", "max_tokens": num_tokens, "ignore_eos": True, "seed": number, **options}
        httpx.post(url + "/v1/completions", json=body, timeout=None).raise_for_status()

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(num_streams)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return num_streams * num_tokens / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--binary", default="build/release/bin/headrace")
    args = parser.parse_args()
    with LocalServer(args.binary, args.model) as server:
        found = {name: [] for name in KINDS}
        tokens_per_second(server.url, KINDS["greedy"], args.streams, args.tokens)  # prompts are cached from here on
        for _ in range(args.rounds):
            for name, options in KINDS.items():
                found[name].append(tokens_per_second(server.url, options, args.streams, args.tokens))
    print(json.dumps({name: {
        "tokens_per_second": round(statistics.median(rates)),
        "of_greedy": round(statistics.median(rate / greedy for rate, greedy in zip(rates, found["greedy"])), 3),
    } for name, rates in found.items()}, indent=1))


if __name__ == "__main__":
    main()
