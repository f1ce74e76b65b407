"""Requests beside hostile ones answer as they do alone, and what was cancelled leaves nothing behind."""

import asyncio
import json
import os
import random

import httpx
import pytest

import tiny_model
from canary import Usage, unharmed
from test_hostile_models import kPoison, poisoned

kFull = os.environ.get("HEADRACE_FULL") == "1"
kRounds = 2000 if kFull else 50
kCancels = 100_000 if kFull else 1000
kAtOnce = 32
kLong = "a prompt that many share, and that fills some blocks of the cache before it comes to its end: "


def canaries():
    """Bodies that name all that an answer depends on."""
    for i in range(15):
        body = {"prompt": (kLong if i % 3 else "") + f"canary {i}", "max_tokens": 16 + i, "ignore_eos": True,
                "logit_bias": {str(kPoison): -100}}
        body |= {"temperature": 0} if i % 2 else {"temperature": 0.9, "top_p": 0.95, "seed": i}
        if i % 4 == 0:
            body["logprobs"] = 2
        if i % 5 == 0:
            body["n"] = 2
        yield body


def hostile(rng):
    """A body that fails, or asks for much, or is left alone."""
    return rng.choice([
        {"prompt": kLong + "canary 1" + chr(kPoison), "max_tokens": 8},          # not finite, behind what others share
        {"prompt": chr(kPoison) + kLong, "max_tokens": 8, "logprobs": 5},
        {"prompt": kLong * 30, "max_tokens": 8},                                 # too long
        {"prompt": kLong, "max_tokens": 400, "n": 8, "ignore_eos": True},
        {"prompt": kLong, "max_tokens": 100, "logprobs": 5, "echo": True},
        {"prompt": rng.randbytes(40).hex(), "max_tokens": 300, "temperature": 2, "min_p": 0.01, "ignore_eos": True},
        {"prompt": "x", "max_tokens": 60, "guided_regex": "(a|b|ab)*c{1,40}"},
        {"prompt": [[1, 2, 3]] * 20, "max_tokens": 3},
        {"prompt": "x", "max_tokens": -1},
    ])


async def choices_of(client, body):
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"]


async def attack(client, body, patience):
    try:
        await client.post("/v1/completions", json=body, timeout=patience)
    except httpx.TransportError:
        pass  # it left


@pytest.fixture(scope="module")
def poisoned_model(tmp_path_factory):
    return poisoned(tmp_path_factory.mktemp("model") / "poisoned")


def test_canaries_answer_beside_a_hostile_request_as_they_do_alone(serve, poisoned_model):
    bodies = list(canaries())

    async def rounds(url):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client:
            alone = [await choices_of(client, body) for body in bodies]
            for number in range(kRounds):
                rng = random.Random(number)
                patience = rng.choice([300, 300, 0.02, 0.1])
                attacker = asyncio.create_task(attack(client, hostile(rng), patience))
                together = await asyncio.gather(*[choices_of(client, body) for body in bodies])
                await attacker
                for body, answer, expected in zip(bodies, together, alone, strict=True):
                    assert answer == expected, f"round {number}: {body}"

    with serve("--context", "512", "--kv-memory", "2M", model=poisoned_model) as server:
        asyncio.run(rounds(server.url))
        assert server.metric("vllm:kv_cache_usage_perc") == 0


async def leave(url, rng):
    """One request whose client goes away: before, in or after its answer."""
    body = {"prompt": kLong[:rng.randint(1, len(kLong))], "max_tokens": rng.choice([1, 20, 400]),
            "ignore_eos": True, "stream": rng.random() < 0.6, "n": rng.choice([1, 1, 3])}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(data), data[:len(data) if rng.random() < 0.9 else 5]))
    try:
        async with asyncio.timeout(rng.choice([0, 0.001, 0.01, 0.1, 1])):
            await reader.read(rng.choice([1, 1000, 100_000]))
    except TimeoutError:
        pass
    writer.transport.abort() if rng.random() < 0.5 else writer.close()


def test_what_clients_leave_behind_is_given_back(serve):
    async def crowd(url):
        rng = random.Random(1)
        gate = asyncio.Semaphore(kAtOnce)

        async def one(seed):
            async with gate:
                await leave(url, random.Random(seed))

        await asyncio.gather(*[one(rng.random()) for _ in range(kCancels)])

    with serve("--context", "512", "--max-sequences", "8", "--kv-memory", "1M") as server:
        asyncio.run(crowd(server.url))  # threads and buffers that stay are there now
        server.wait_until_idle()
        with unharmed(server, grown_mib=16):
            asyncio.run(crowd(server.url))
            server.wait_until_idle()
        assert server.metric("vllm:kv_cache_usage_perc") == 0
        assert Usage(server.process.pid).descriptors < 100
