"""What forms cost: gaps between the tokens of plain streams while the server compiles new schemas, and the speed of
a constrained answer beside a free one, with what the forced tokens of a schema give.

    .venv/bin/python bench/structure.py MODEL [--schemas 1000] [--streams 4] [--binary build/release/bin/headrace]

On an idle machine. Prints one JSON object; with --check it fails above 1.1 times the gaps without schemas.
"""

import argparse
import json
import statistics
import threading
import time

import httpx

from local_server import LocalServer


def schema(number):
    """Like a form of a tool's arguments; each number is another one."""
    return {"type": "object", "additionalProperties": False,
            "properties": {f"field_{number}_{i}": kind for i, kind in enumerate([
                {"type": "string", "maxLength": 40 + number % 50}, {"type": "integer", "minimum": number},
                {"enum": [f"{word}{number}" for word in ("red", "green", "blue")]},
                {"type": "array", "items": {"type": "number"}, "maxItems": 5},
                {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"name": {"type": "string"}}}]}])},
            "required": [f"field_{number}_0", f"field_{number}_1", f"field_{number}_2"]}


def stream_gaps(url, stop, gaps):
    body = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "temperature": 0, "stream": True}
    while not stop.is_set():
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=None) as response:
            last = None
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                now = time.monotonic()
                if last is not None:
                    gaps.append(now - last)
                last = now
                if stop.is_set():
                    break


def measure(url, num_streams, work):
    """Gaps of the streams while `work` runs."""
    stop, gaps = threading.Event(), []
    threads = [threading.Thread(target=stream_gaps, args=(url, stop, gaps)) for _ in range(num_streams)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    gaps.clear()
    work()
    found = sorted(gaps)
    stop.set()
    for thread in threads:
        thread.join()
    return {"gaps": len(found), "p50_ms": found[len(found) // 2] * 1e3, "p99_ms": found[len(found) * 99 // 100] * 1e3}


def ask(url, body):
    """Compiles; one token, or none of the grammar's, is generated."""
    response = httpx.post(url + "/v1/completions", timeout=None, json={"prompt": "x", "temperature": 0} | body)
    response.raise_for_status()
    return response.json()


def speed(url, body, repeats=3):
    """Tokens per second of one answer alone."""
    rates = []
    for seed in range(repeats):
        begin = time.monotonic()
        usage = ask(url, {"max_tokens": 200, "seed": seed} | body)["usage"]
        rates.append(usage["completion_tokens"] / (time.monotonic() - begin))
    return statistics.median(rates)


def compare(url, given):
    seconds = []

    def plain_requests():
        for number in range(given.schemas):
            ask(url, {"prompt": f"{number}", "max_tokens": 1})

    def compile_all():
        for number in range(given.schemas):
            begin = time.monotonic()
            ask(url, {"prompt": f"{number}", "max_tokens": 1, "guided_json": schema(number)})
            seconds.append(time.monotonic() - begin)

    ask(url, {"max_tokens": 1, "guided_regex": "a"})  # the trie of the vocabulary
    before = measure(url, given.streams, plain_requests)
    during = measure(url, given.streams, compile_all)
    fixed = {"const": {f"property_number_{i}": "a value that is known" for i in range(8)}}
    return {
        "schemas": given.schemas, "streams": given.streams,
        "gaps_with_plain_requests": before, "gaps_with_new_schemas": during,
        "p99_ratio": during["p99_ms"] / before["p99_ms"],
        "request_p50_ms": statistics.median(seconds) * 1e3,
        "free_tokens_per_s": speed(url, {"ignore_eos": True}),
        "object_tokens_per_s": speed(url, {"guided_regex": "[a-z ]{2000}"}),
        "forced_tokens_per_s": speed(url, {"guided_json": fixed}),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--binary", default="build/release/bin/headrace")
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with LocalServer(given.binary, given.model) as server:
        result = compare(server.url, given)
    print(json.dumps(result, indent=1))
    if given.check and result["p99_ratio"] > 1.1:
        raise SystemExit("the gaps between tokens grow by more than a tenth")


if __name__ == "__main__":
    main()
