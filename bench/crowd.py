"""Many clients at once: headrace beside llama-server on the same file, by one load, in turns.

    .venv/bin/python bench/crowd.py MODEL.gguf --llama-server FILE [--clients 16,64] [--prompt 128] [--answer 64]
                                    [--seconds 20] [--rounds 3] [--binary build/release/bin/headrace]

On an idle machine. `headrace bench serve` asks both servers (closed loop: each client asks again when it has its answer), which
both have a slot for each client. Medians over the rounds; prints one JSON object: for each number of clients output
tokens per second and the median time to the first token of each side, and their ratios. llama-server is built from the sources
that the package llama-cpp-python ships (`cmake -DGGML_NATIVE=ON -DLLAMA_BUILD_SERVER=ON`); without it headrace runs alone.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import time

import httpx

from local_server import LocalServer, load_command, stage_of


class LlamaServer:
    """As LocalServer, of llama.cpp; one context for each slot."""

    def __init__(self, binary, model, slots, context, threads):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [binary, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-np", str(slots), "-c", str(slots * context),
             "-t", str(threads), "-tb", str(threads)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(300):
            try:
                if httpx.get(self.url + "/health").status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            if self.process.poll() is not None:
                raise SystemExit(f"llama-server ended with status {self.process.returncode}")
            time.sleep(0.2)
        raise SystemExit("llama-server does not answer")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def sides(clients, given):
    context = 2 * (given.prompt + given.answer)
    yield "headrace", lambda: LocalServer(given.binary, given.model, "--max-sequences", clients, "--threads", given.threads)
    if given.llama_server:
        yield "llama-server", lambda: LlamaServer(given.llama_server, given.model, clients, context, given.threads)


def compare(clients, given):
    found = {}
    for _ in range(given.rounds):
        for name, start in sides(clients, given):
            with start() as server:
                command = load_command(given.binary, server.url, clients, given.prompt, given.answer, given.seconds)
                found.setdefault(name, []).append(stage_of(command))
    result = {name: {"output_tokens_per_s": statistics.median(s["output_tokens_per_s"]["value"] for s in stages),
                     "ttft_p50_ms": statistics.median(s["ttft_ms"]["p50"]["value"] for s in stages)}
              for name, stages in found.items()}
    if "llama-server" in result:
        ours, theirs = result["headrace"], result["llama-server"]
        result["tokens_ratio"] = ours["output_tokens_per_s"] / theirs["output_tokens_per_s"]
        result["ttft_ratio"] = ours["ttft_p50_ms"] / theirs["ttft_p50_ms"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--llama-server", help="the program; without it headrace runs alone")
    parser.add_argument("--clients", default="16,64")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--binary", default="build/release/bin/headrace")
    given = parser.parse_args()
    print(json.dumps({clients: compare(int(clients), given) for clients in given.clients.split(",")}, indent=1))


if __name__ == "__main__":
    main()
