"""Many at once: streams, attackers that send a byte now and then, and bodies that together are far too much."""

import asyncio
import json
import resource
import time

import httpx
import pytest

from canary import Usage, budget, unharmed

kMiB = 1024 * 1024
kStreams = 2000
kAttackers = 1000
kBodies = 500


@pytest.fixture(scope="module", autouse=True)
def descriptors():
    """As many as the system gives; the server inherits them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 2 * kStreams:
        pytest.skip(f"a process may open {hard} files here")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def post(path, body):
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        path, len(body), body)


async def answer_of(port, data):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read(-1)
    writer.close()
    return answer


def test_two_thousand_streams_each_have_all_their_tokens_and_one_end(serve):
    body = json.dumps({"prompt": "a", "max_tokens": 4, "ignore_eos": True, "stream": True}).encode()

    async def crowd(port):
        return await asyncio.gather(*[answer_of(port, post(b"/v1/completions", body)) for _ in range(kStreams)])

    with serve("--context", "256", "--max-waiting", "4096") as server, unharmed(server):
        idle = Usage(server.process.pid)
        answers = asyncio.run(crowd(server.port))
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 200 OK"), answer[:200]
            assert answer.count(b"data: {") == 5 or answer.count(b'"finish_reason":"length"') == 1
            assert answer.count(b'"finish_reason":"length"') == 1 and answer.count(b"data: [DONE]") == 1
            assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        grown = Usage(server.process.pid).resident_mib - idle.resident_mib
        assert grown < 200, f"{grown} MiB more for {kStreams} streams"
        assert server.metric("headrace:disconnects_total") == 0


def test_slow_senders_are_closed_by_absolute_deadlines_and_keep_nobody_waiting(serve):
    """A byte every second, in the request line, in a field, or of a body's chunk header."""
    beginnings = [b"GET /heal", b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: b",
                  b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0000"]
    closed, statuses = [], []

    async def attack(port, beginning, begin):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(beginning)
        said = asyncio.create_task(reader.read(-1))
        while not said.done():
            await asyncio.wait([said], timeout=1)
            if not said.done():
                writer.write(b"0")
        closed.append(time.monotonic() - begin)
        statuses.append(said.result()[9:12] if not said.exception() else b"")
        writer.close()

    async def honest(client, times):
        for _ in range(40):
            begin = time.monotonic()
            answer = await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
            assert answer.status_code == 200
            times.append(time.monotonic() - begin)
            await asyncio.sleep(0.1)

    async def scene(server):
        alone, beside = [], []
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            await honest(client, alone)
            begin = time.monotonic()
            attackers = [asyncio.create_task(attack(server.port, beginnings[i % len(beginnings)], begin))
                         for i in range(kAttackers)]
            await honest(client, beside)
            await asyncio.gather(*attackers)
        return sorted(alone), sorted(beside)

    with serve("--context", "256") as server, unharmed(server):
        patience = budget(20)
        alone, beside = asyncio.run(scene(server))
        assert len(closed) == kAttackers and max(closed) < 10 + patience
        assert set(statuses) <= {b"408", b""} and statuses.count(b"408") > kAttackers // 2
        assert beside[len(beside) // 2] < 2 * alone[len(alone) // 2] + budget(0.2)


def test_bodies_that_are_too_much_together_leave_the_memory_within_its_budget(serve):
    given = 256
    piece = b" " * kMiB

    async def send(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        said = asyncio.create_task(reader.read(4096))
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (32 * kMiB))
            for _ in range(32):
                if said.done():
                    break
                writer.write(piece)
                await writer.drain()
            answer = await said
        except ConnectionError:
            answer = b""
        writer.close()
        return answer

    async def ask(client, times, count):
        for _ in range(count):
            begin = time.monotonic()
            assert (await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})).status_code == 200
            times.append(time.monotonic() - begin)

    async def watch(pid, peak, done):
        while not done.is_set():
            peak.append(Usage(pid).resident_mib)
            await asyncio.sleep(0.02)

    async def scene(server):
        alone, beside, peak, done = [], [], [], asyncio.Event()
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            await ask(client, alone, 50)
            before = Usage(server.process.pid).resident_mib
            watcher = asyncio.create_task(watch(server.process.pid, peak, done))
            small = asyncio.create_task(ask(client, beside, 50))
            answers = await asyncio.gather(*[send(server.port) for _ in range(kBodies)])
            await small
            done.set()
            await watcher
        return answers, before, max(peak), sorted(alone), sorted(beside)

    with serve("--context", "256", "--request-memory", f"{given}M") as server:
        answers, before, peak, alone, beside = asyncio.run(scene(server))
        assert peak - before <= given * 1.05 + 16, f"{before} MiB before, at most {peak} MiB"
        kinds = {status: sum(answer[9:12] == status for answer in answers) for status in [b"400", b"408", b"503", b""]}
        assert sum(kinds.values()) == kBodies and kinds[b"503"] > 0, kinds
        assert server.metric("headrace:refused_memory_total") >= kinds[b"503"]
        print("small requests, median and slowest, ms:", [round(1000 * t, 1) for t in
              (alone[25], alone[-1], beside[25], beside[-1])])
        assert beside[25] < 2 * alone[25] + budget(0.5)
