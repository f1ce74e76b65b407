"""Few-shot evaluation: log-probs of prompts that begin alike, with what the cache keeps of them and without.

    .venv/bin/python bench/few_shot.py MODEL [--shots 1500] [--questions 40] [--rounds 2] [--binary build/release/bin/headrace]
                                       [--check]

Each question is a few tokens behind the same examples (`--shots` tokens), its prompt's log-probs are asked for (`echo`,
`max_tokens` 0), as an evaluation harness does. Without: every prompt is of a cache domain of its own (`cache_salt`). Prints one
JSON object with the ratio of times; the floats must be the same, or it fails. With --check it fails below 5.
"""

import argparse
import json
import random
import statistics
import time

import httpx

from local_server import LocalServer


def evaluate(server, examples, questions, salt):
    """Seconds, and the log-probs of all questions."""
    found, began = [], time.monotonic()
    for number, question in enumerate(questions):
        body = {"prompt": examples + question, "max_tokens": 0, "echo": True, "logprobs": 1, "temperature": 0,
                "cache_salt": salt(number)}
        answer = httpx.post(server.url + "/v1/completions", json=body, timeout=None)
        answer.raise_for_status()
        found.append(answer.json()["choices"][0]["logprobs"]["token_logprobs"])
    return time.monotonic() - began, found


def compare(server, given):
    rng = random.Random(1)
    ratios = []
    for round_idx in range(given.rounds):
        examples = [rng.randrange(100, 20000) for _ in range(given.shots)]
        questions = [[rng.randrange(100, 20000) for _ in range(30)] for _ in range(given.questions)]
        cold, expected = evaluate(server, examples, questions, lambda number, r=round_idx: f"round {r}, {number}")
        kept, found = evaluate(server, examples, questions, lambda _, r=round_idx: f"round {r}")
        if found != expected:
            raise SystemExit("the log-probs differ")
        ratios.append(cold / kept)
    return {"shots": given.shots, "questions": given.questions, "times_as_fast": statistics.median(ratios)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--shots", type=int, default=1500)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--binary", default="build/release/bin/headrace")
    given = parser.parse_args()
    with LocalServer(given.binary, given.model, "--context", given.shots + 100) as server:
        found = compare(server, given)
    print(json.dumps(found, indent=1))
    if given.check and found["times_as_fast"] < 5:
        raise SystemExit("less than five times as fast")


if __name__ == "__main__":
    main()
