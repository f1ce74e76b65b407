"""Twice the memory for keys and values is asked for: what streams get of the machine, beside the same load with enough memory.

    .venv/bin/python bench/overload.py MODEL [--streams 16] [--prompt 400] [--answer 600] [--minutes 30]
                                       [--ideal-minutes 2] [--binary build/release/bin/headrace] [--check]

Each stream asks again when it has its answer; all lengths are known, so `--kv-memory` is half of what the streams need together.
Prints one JSON object: tokens per second of both runs and their ratio (goodput: every answer is whole, or it fails), the slowest
stream (tokens of an answer by the time from asking to its end), pre-emptions an answer (a request has four at most, which the
simulation of schedules holds the scheduler to). With --check it fails below 1 token/s, above 4, or below 0.8 of the ideal.
"""

import argparse
import json
import random
import threading
import time

import httpx

from local_server import LocalServer


class Load:
    """Streams that ask until a time; what they got."""

    def __init__(self, server, given, minutes):
        self.server, self.given = server, given
        self.ends = time.monotonic() + 60 * minutes
        self.lock = threading.Lock()
        self.slowest, self.answers, self.failures = float("inf"), 0, []

    def run(self):
        before, began = self.server.metrics(), time.monotonic()
        threads = [threading.Thread(target=self.ask_on, args=(number,)) for number in range(self.given.streams)]
        for thread in threads:
            thread.start()
        time.sleep(max(0, self.ends - time.monotonic()))
        after, took = self.server.metrics(), time.monotonic() - began  # before the load falls
        for thread in threads:
            thread.join()
        if self.failures:
            raise SystemExit(f"{len(self.failures)} answers are not whole, the first: {self.failures[0]}")
        change = {name: after[name] - before[name] for name in after}
        return {"tokens_per_s": change["vllm:generation_tokens_total"] / took, "answers": self.answers,
                "slowest_stream_tokens_per_s": self.slowest,
                "preemptions_per_answer": change["vllm:num_preemptions_total"] / max(1, self.answers)}

    def ask_on(self, number):
        rng = random.Random(number)
        while time.monotonic() < self.ends:
            body = {"prompt": [rng.randrange(100, 20000) for _ in range(self.given.prompt)], "max_tokens": self.given.answer,
                    "ignore_eos": True, "temperature": 0}
            began = time.monotonic()
            answer = httpx.post(self.server.url + "/v1/completions", json=body, timeout=None)
            rate = self.given.answer / (time.monotonic() - began)
            with self.lock:
                if answer.status_code != 200 or answer.json()["usage"]["completion_tokens"] != self.given.answer:
                    self.failures.append(answer.text[:300])
                    return
                self.slowest, self.answers = min(self.slowest, rate), self.answers + 1


def bytes_per_token(given):
    """Of a model all of whose layers keep every position, in blocks of 16 tokens."""
    some = 64 << 20
    with LocalServer(given.binary, given.model, "--kv-memory", some) as server:
        blocks = httpx.get(server.url + "/api/headrace/status", timeout=60).json()["engine"]["kv_blocks_total"]
    return some / blocks / 16


def measure(given):
    block = 16
    need = given.streams * (given.prompt + given.answer + block) * bytes_per_token(given)
    common = ["--max-sequences", given.streams, "--context", 2 * (given.prompt + given.answer)]
    with LocalServer(given.binary, given.model, *common, "--kv-memory", int(need)) as server:
        ideal = Load(server, given, given.ideal_minutes).run()
    with LocalServer(given.binary, given.model, *common, "--kv-memory", int(need / 2)) as server:
        tight = Load(server, given, given.minutes).run()
    return {"ideal": ideal, "half_the_memory": tight, "goodput": tight["tokens_per_s"] / ideal["tokens_per_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=400)
    parser.add_argument("--answer", type=int, default=600)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--ideal-minutes", type=float, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--binary", default="build/release/bin/headrace")
    given = parser.parse_args()
    found = measure(given)
    print(json.dumps(found, indent=1))
    tight = found["half_the_memory"]
    if given.check and (tight["slowest_stream_tokens_per_s"] < 1 or tight["preemptions_per_answer"] > 4 or found["goodput"] < 0.8):
        raise SystemExit("the promise is not kept")


if __name__ == "__main__":
    main()
