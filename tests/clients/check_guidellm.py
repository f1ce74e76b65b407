"""guidellm: as a client of our server, and beside `headrace bench serve` on a server of known latencies."""

import contextlib
import json
import socket
import subprocess
import sys
import time

import httpx
import pytest
from conftest import http_support
from programs import kEnvironment, run

kFirst_ms, kGap_ms, kTokens, kClients, kSeconds = 150, 25, 32, 4, 12


def guidellm(report, target, model, tokenizer, route, *options, tokens, cwd):
    """The only benchmark of a run."""
    run("guidellm", "run", "--backend", f"kind=openai_http,target={target},model={model},request_format=/v1/{route}",
        "--tokenizer", f"kind=huggingface_auto,model={tokenizer}", "--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={tokens}",
        *options, "--output", f"kind=json,path={report}", "--disable-console", cwd=cwd)
    return json.loads(report.read_text())["benchmarks"][0]


def test_guidellm_measures(server, folder, tmp_path):
    for route in ("completions", "chat/completions"):
        found = guidellm(tmp_path / f"{route[:4]}.json", server.url, "tiny", folder, route, "--profile", "kind=synchronous",
                         "--constraint", "kind=max_requests,count=4", tokens=8, cwd=tmp_path)
        assert len(found["requests"]["successful"]) == 4 and not found["requests"]["errored"]


@contextlib.contextmanager
def server_of_known_latencies(folder):
    """guidellm's own, so that neither side is the judge."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "guidellm", "mock-server", "--port", str(port), "--model", "mock", "--ttft-ms", str(kFirst_ms),
         "--itl-ms", str(kGap_ms), "--output-tokens", str(kTokens)],
        env=kEnvironment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(url + "/v1/models").raise_for_status()
                break
            assert process.poll() is None and time.monotonic() < end, "the mock server does not answer"
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def test_guidellm_and_bench_serve_agree(folder, tmp_path):
    with server_of_known_latencies(tmp_path) as url:
        theirs = guidellm(tmp_path / "theirs.json", url, "mock", folder, "completions", "--profile",
                          f"kind=concurrent,streams={kClients},warmup=0.1,cooldown=0.1", "--constraint",
                          f"kind=max_duration,seconds={kSeconds}", tokens=kTokens, cwd=tmp_path)["metrics"]
        saved = tmp_path / "ours.json"
        subprocess.run([http_support.kBinary, "bench", "serve", url, "--api", "completions", "--load", f"closed:{kClients}",
                        "--duration", str(kSeconds), "--prompt-tokens", "16", "--answer-tokens", str(kTokens), "--save", str(saved)],
                       check=True, timeout=300)
    ours = json.loads(saved.read_text())["stages"][0]
    medians = {"ttft_ms": "time_to_first_token_ms", "tpot_ms": "inter_token_latency_ms"}
    for mine, other in medians.items():
        assert ours[mine]["p50"]["value"] == pytest.approx(theirs[other]["successful"]["median"], rel=0.05), mine
    assert ours["e2e_ms"]["p50"]["value"] == pytest.approx(1e3 * theirs["request_latency"]["successful"]["median"], rel=0.05)
    assert ours["output_tokens_per_s"]["value"] == pytest.approx(theirs["output_tokens_per_second"]["total"]["mean"], rel=0.05)
    assert ours["failed"] == 0 and ours["mean_answer_tokens"] == kTokens
