"""What guessing tokens gives: the same requests on a server that guesses and on one that does not, in turns.

    .venv/bin/python bench/speculation.py MODEL [--speculation ngram] [--draft-model SMALLER] [--rounds 3]
                                          [--batch 1,4,16] [--tokens 256] [--binary build/release/bin/headrace]

Three kinds of text: a file of code to be written again with one name changed, a text whose sentences are to be
quoted, and letters at random, in which every few of them stood before with something else behind. Prints one JSON
object: for each kind and number of requests at a time the time without by the time with, as processor time of the
server and on the clock, and the share of guesses that were right. Answers must be the same, or it fails.
"""

import argparse
import concurrent.futures
import json
import random
import statistics
import time

import httpx

from local_server import LocalServer

FIELDS = ["name", "owner", "size", "colour", "weight", "price", "origin", "label", "state", "count"]
CODE = "class Item:\n    def __init__(self, " + ", ".join(FIELDS) + "):\n" + "".join(
    f"        self.{field} = {field}\n" for field in FIELDS) + "".join(
    f"\n    def get_{field}(self):\n        if self.{field} is None:\n            raise ValueError(\"no {field}\")\n"
    f"        return self.{field}\n" for field in FIELDS)
TEXT = " ".join([
    "The river rose in the night and took the old bridge with it.",
    "By morning the farmers stood on both banks and looked at the water.",
    "Nobody had been hurt, but the mill was cut off from the village.",
    "The mayor promised a ferry within a week and a new bridge within a year.",
    "An engineer from the city measured the banks and shook her head.",
    "She wanted the bridge to stand higher, on three arches instead of two.",
    "The money for it was to come from the toll on the upper road."])


def bodies(kind, count, num_tokens):
    for i in range(count):
        body = {"max_tokens": num_tokens, "temperature": 0, "seed": i}
        if kind == "code":
            ask = f"Write this file again, with get_ replaced by read{i}_. Answer with the code alone.\n\n{CODE}"
            yield "chat/completions", body | {"messages": [{"role": "user", "content": ask}]}
        elif kind == "quotes":
            ask = f"{i}. Summarise this text. Quote each sentence in full before what you say about it.\n\n{TEXT}"
            yield "chat/completions", body | {"messages": [{"role": "user", "content": ask}]}
        else:
            letters = " ".join(random.Random(i).choices("ABCD", k=300))
            yield "completions", body | {"prompt": letters, "temperature": 1, "ignore_eos": True}


def ask_all(server, requests):
    """Processor seconds, seconds, texts."""
    def ask(request):
        response = httpx.post(f"{server.url}/v1/{request[0]}", json=request[1], timeout=None)
        response.raise_for_status()
        choice = response.json()["choices"][0]
        return choice["message"]["content"] if "message" in choice else choice["text"]

    before, began = server.processor_seconds(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        texts = list(pool.map(ask, requests))
    return server.processor_seconds() - before, time.monotonic() - began, texts


def guessed(server):
    metrics = server.metrics()
    return [metrics.get(f"vllm:spec_decode_num_{what}_tokens_total", 0) for what in ("draft", "accepted")]


def compare(plain, guessing, kind, count, options):
    requests = list(bodies(kind, count, options.tokens))
    ratios, seconds = [], []
    before = guessed(guessing)
    for round_idx in range(options.rounds + 1):  # the first fills the prefix caches
        without = ask_all(plain, requests)
        with_guesses = ask_all(guessing, requests)
        if without[2] != with_guesses[2]:
            raise SystemExit(f"{kind}, {count} at a time: the answers differ")
        if round_idx > 0:
            ratios.append(without[0] / with_guesses[0])
            seconds.append(without[1] / with_guesses[1])
    tokens, accepted = (after - first for after, first in zip(guessed(guessing), before))
    return {"processor": round(statistics.median(ratios), 2), "clock": round(statistics.median(seconds), 2),
            "right": round(accepted / tokens, 2) if tokens else None, "guesses": int(tokens)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--speculation", default="ngram")
    parser.add_argument("--draft-model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--kinds", default="code,quotes,random")
    parser.add_argument("--binary", default="build/release/bin/headrace")
    options = parser.parse_args()
    draft = ["--draft-model", options.draft_model] if options.draft_model else []
    many = ["--max-sequences", 32]
    with (LocalServer(options.binary, options.model, *many, "--speculation", "off") as plain,
          LocalServer(options.binary, options.model, *many, "--speculation", options.speculation, *draft) as guessing):
        found = {kind: {count: compare(plain, guessing, kind, int(count), options) for count in options.batch.split(",")}
                 for kind in options.kinds.split(",")}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
