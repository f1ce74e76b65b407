#!/usr/bin/env python3
"""`headrace bench serve` beside guidellm: the same server, the same kind of load, at the same time.

bench/beside_guidellm.py MODEL.gguf [--clients 2] [--rounds 5] [--seconds 20] [--prompt 128] [--answer 64]
                         [--guidellm build/clients/harnesses]

guidellm lives in the environment that `tools/clients.sh harnesses` makes. Each is a closed load of --clients, which asks
/v1/completions of one server without guesses; prompts are of as many tokens as ours had, answers of --answer, no text comes
twice; the first and the last tenth of the time do not count. Both run together, since guidellm's processes take cores from
a server that ours leave it: in turns the two would meet different servers. Ours begins when the server has guidellm's
first requests. Prints each side's medians over the rounds, and the median of the rounds' ratios with its 95 % bootstrap
interval; exit status 1 where a ratio is off by more than --within, but for the first token's: when it comes depends on
whose prompts meet, which differs between two loads. (tests/clients has both on a server of known latencies.)
"""

import argparse
import concurrent.futures
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from local_server import LocalServer

kRepository = Path(__file__).resolve().parents[1]
kFigures = ["output tokens/s", "TTFT p50, ms", "gap p50, ms", "end to end p50, ms", "requests/s"]


class Sides:
    def __init__(self, given, url, folder):
        self.given, self.url, self.folder = given, url, Path(folder)
        self.python = str(Path(given.guidellm).absolute() / "bin/python")
        self.environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.prompt_tokens = given.prompt

    def run(self, command, **how):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self.given.seconds + 300, **how)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def make_tokenizer(self):
        """guidellm makes its prompts by a tokenizer in transformers' files; the model's own lies in its GGUF."""
        path = Path(self.given.model).resolve()
        code = ("import sys; from transformers import AutoTokenizer as T; "
                "T.from_pretrained(sys.argv[1], gguf_file=sys.argv[2]).save_pretrained(sys.argv[3])")
        self.run([self.python, "-c", code, str(path.parent), path.name, str(self.folder / "tokenizer")], env=self.environment)

    def together(self, seed):
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            theirs = other.submit(self.theirs, seed)
            while not theirs.done() and self.running() == 0:
                time.sleep(0.05)
            return self.ours(seed), theirs.result()

    def running(self):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            found = re.findall(rb"^vllm:num_requests_running\S* (\S+)$", answer.read(), re.M)
        return sum(map(float, found))

    def ours(self, seed):
        saved = self.folder / "ours.json"
        self.run([self.given.binary, "bench", "serve", self.url, "--api", "completions", "--load", f"closed:{self.given.clients}",
                  "--duration", str(self.given.seconds), "--warmup", str(self.given.seconds / 10), "--seed", str(seed),
                  "--prompt-tokens", str(self.given.prompt), "--answer-tokens", str(self.given.answer), "--save", str(saved)])
        stage = json.loads(saved.read_text())["stages"][0]
        self.prompt_tokens = round(stage["mean_prompt_tokens"])
        return {"output tokens/s": stage["output_tokens_per_s"]["value"], "TTFT p50, ms": stage["ttft_ms"]["p50"]["value"],
                "gap p50, ms": stage["tpot_ms"]["p50"]["value"], "end to end p50, ms": stage["e2e_ms"]["p50"]["value"],
                "requests/s": stage["requests_per_s"]}

    def theirs(self, seed):
        saved = self.folder / "theirs.json"
        backend = json.dumps({"kind": "openai_http", "target": self.url, "model": self.given.request_model,
                              "request_format": "/v1/completions", "extras": {"body": {"temperature": 0}}})
        data = f"kind=synthetic_text,prompt_tokens={self.prompt_tokens},output_tokens={self.given.answer}"
        self.run([self.python, "-m", "guidellm", "run", "--backend", backend,
                  "--profile", f"kind=concurrent,streams={self.given.clients},warmup=0.1,cooldown=0.1",
                  "--constraint", f"kind=max_duration,seconds={self.given.seconds}", "--seed", f"kind=static,value={seed}",
                  "--tokenizer", f"kind=huggingface_auto,model={self.folder / 'tokenizer'}", "--data", data,
                  "--output", f"kind=json,path={saved}", "--disable-console"], env=self.environment, cwd=self.folder)
        metrics = json.loads(saved.read_text())["benchmarks"][0]["metrics"]

        def median(name):
            return metrics[name]["successful"]["median"]

        return {"output tokens/s": metrics["output_tokens_per_second"]["total"]["mean"],
                "TTFT p50, ms": median("time_to_first_token_ms"), "gap p50, ms": median("inter_token_latency_ms"),
                "end to end p50, ms": 1e3 * median("request_latency"),
                "requests/s": metrics["requests_per_second"]["successful"]["mean"]}


def interval(ratios, draws=2000):
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def table(rows):
    lines = ["| | headrace bench serve | guidellm | ratio |", "|---|---|---|---|"]
    worst = 0
    for name in kFigures:
        ours, theirs = [row[0][name] for row in rows], [row[1][name] for row in rows]
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        low, high = interval(ratios)
        ratio = statistics.median(ratios)
        if not name.startswith("TTFT"):
            worst = max(worst, abs(ratio - 1))
        lines.append(f"| {name} | {statistics.median(ours):.4g} | {statistics.median(theirs):.4g} "
                     f"| {ratio:.3f} ({low:.3f} to {high:.3f}) |")
    return "\n".join(lines), worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--within", type=float, default=0.05)
    parser.add_argument("--binary", default=str(kRepository / "build/release/bin/headrace"))
    parser.add_argument("--guidellm", default=str(kRepository / "build/clients/harnesses"))
    given = parser.parse_args()
    given.request_model = Path(given.model).stem
    options = ["--context", 2048, "--log-level", "warning", "--speculation", "off"]
    with LocalServer(given.binary, given.model, *options) as server, tempfile.TemporaryDirectory() as folder:
        sides = Sides(given, server.url, folder)
        sides.make_tokenizer()
        sides.ours(1000)  # warms up, and tells how many tokens a prompt has
        rows = []
        for number in range(given.rounds):
            rows.append(sides.together(number))
            print(f"round {number + 1} of {given.rounds}: {rows[-1]}", file=sys.stderr)
    text, worst = table(rows)
    print(text)
    return 0 if worst <= given.within else 1


if __name__ == "__main__":
    sys.exit(main())
