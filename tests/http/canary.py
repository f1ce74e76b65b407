"""What every attack must leave as it was: the answer of a greedy request, descriptors, threads and memory."""

import contextlib
import os
import time
from pathlib import Path

import httpx

kSettleSeconds = 60


def budget(seconds):
    """What `seconds` of a machine that does nothing else are now: as often more as a processor is away from us."""
    begin, spent = time.monotonic(), time.process_time()
    while time.process_time() - spent < 0.1:
        pass
    return seconds * max(1.0, (time.monotonic() - begin) / 0.1)


class Usage:
    """What a process holds now."""

    def __init__(self, pid):
        folder = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        self.descriptors = len(os.listdir(folder / "fd"))
        self.threads = int(status["Threads"])
        self.resident_mib = int(status["VmRSS"].split()[0]) // 1024

    def __repr__(self):
        return f"{self.descriptors} descriptors, {self.threads} threads, {self.resident_mib} MiB"


def answer(server, headers=None):
    response = httpx.post(server.url + "/v1/completions", timeout=60, headers=headers, json={
        "prompt": "The canary sings", "temperature": 0, "max_tokens": 24, "ignore_eos": True, "logprobs": 1})
    assert response.status_code == 200, response.text
    body = response.json()
    return body["choices"], body["usage"]["completion_tokens"], body["system_fingerprint"]


@contextlib.contextmanager
def unharmed(server, grown_mib=64, headers=None):
    """Around a scenario: afterwards the server answers the same bytes, and within some seconds holds no more
    descriptors and threads than before, and at most grown_mib more memory."""
    before_answer = answer(server, headers)
    before = Usage(server.process.pid)
    yield
    assert server.process.poll() is None, "the server died:\n" + "".join(server.errors)
    assert answer(server, headers) == before_answer
    end = time.monotonic() + kSettleSeconds
    while True:
        now = Usage(server.process.pid)
        settled = (now.descriptors <= before.descriptors and now.threads <= before.threads
                   and now.resident_mib <= before.resident_mib + grown_mib)
        if settled:
            return
        assert time.monotonic() < end, f"before: {before}; {kSettleSeconds} s after: {now}"
        time.sleep(0.1)
