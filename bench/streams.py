"""What streams wait for: the engine's time between two forward passes, threads woken by a step, how close the predicted
times of steps are; then the gaps between tokens without and with a long prompt beside them, and what the prompt waits.

    .venv/bin/python bench/streams.py MODEL [--streams 16] [--prompt 4000] [--rounds 3] [--binary build/release/bin/headrace]
                                      [--option=--inter-token-target=0 ...]

On an idle machine. Prints one JSON object. Times of the engine are its own, from /metrics.
"""

import argparse
import json
import random
import statistics
import threading
import time

import httpx

from local_server import LocalServer


class Streams:
    """Answers that go on until the end; the times of their tokens."""

    def __init__(self, url, count):
        self.url, self.gaps, self.stopped = url, [], threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(3)
        self.gaps.clear()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def run(self, number):
        body = {"prompt": f"{number} tales", "max_tokens": 1500, "ignore_eos": True, "temperature": 0, "stream": True}
        while not self.stopped.is_set():
            with httpx.stream("POST", self.url + "/v1/completions", json=body, timeout=None) as response:
                last = None
                for line in response.iter_lines():
                    if not line.startswith("data: {"):
                        continue
                    now = time.monotonic()
                    if last is not None:
                        self.gaps.append(now - last)
                    last = now
                    if self.stopped.is_set():
                        return

    def take(self):
        found, self.gaps = sorted(self.gaps), []
        return {"p50_ms": found[len(found) // 2] * 1e3, "p99_ms": found[len(found) * 99 // 100] * 1e3}


def time_to_first(url, num_words):
    """Seconds until a prompt of so many random words has its first token."""
    words = [random.choice(["red", "sea", "hill", "cat", "run", "old"]) for _ in range(num_words)]
    begin = time.monotonic()
    body = {"prompt": " ".join(words), "max_tokens": 1, "temperature": 0}
    httpx.post(url + "/v1/completions", json=body, timeout=None).raise_for_status()
    return time.monotonic() - begin


def between(before, after):
    """What the engine did between two looks at its metrics."""
    def change(name):
        return after[name] - before[name]

    gap = "headrace:step_gap_seconds"
    count = change(gap + "_count")
    return {
        "steps": change("headrace:steps_total"),
        "gap_mean_us": change(gap + "_sum") / count * 1e6,
        "gap_share_within_us": {round(float(edge) * 1e6): round(change(f"{gap}_bucket:{edge}") / count, 3)
                                for edge in ("2e-05", "3e-05", "5e-05", "0.0001", "0.0002", "0.001", "0.01")},
        "wakes_per_step": change("headrace:step_wakes_total") / change("headrace:steps_total"),
        "predicted_within_15_percent":
            change("headrace:step_predictions_close_total") / change("headrace:step_predictions_total"),
    }


def measure(server, options):
    alone = [time_to_first(server.url, options.prompt) for _ in range(options.rounds)]
    with Streams(server.url, options.streams) as streams:
        before = server.metrics()
        time.sleep(options.seconds)
        found = {"engine": between(before, server.metrics()), "streams": streams.take()}
        beside = [time_to_first(server.url, options.prompt) for _ in range(options.rounds)]
        found["streams_beside_prompts"] = streams.take()
        found["prompts"] = between(before, server.metrics())["predicted_within_15_percent"]
    found["first_token_s"] = {"alone": statistics.median(alone), "beside_streams": statistics.median(beside)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--binary", default="build/release/bin/headrace")
    parser.add_argument("--option", action="append", default=[])
    options = parser.parse_args()
    with LocalServer(options.binary, options.model, *options.option) as server:
        print(json.dumps(measure(server, options), indent=1))


if __name__ == "__main__":
    main()
