"""What the server tells others: routers of its prefix cache, over ZeroMQ; a collector of traces, over OTLP."""

import http.server
import json
import threading
import time
from typing import Any, Optional, Union

import httpx
import msgspec
import pytest
import zmq

kBlock = 16


# As routers declare the messages; decoding is strict about types.
class Event(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[Union[bytes, int]]
    parent_block_hash: Optional[Union[bytes, int]]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list[Any]] = None


class BlockRemoved(Event):
    block_hashes: list[Union[bytes, int]]
    medium: Optional[str]


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, omit_defaults=True, gc=False):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


class Router:
    """Knows which prefixes the server holds, by the events alone."""

    def __init__(self, endpoint):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVTIMEO, 60_000)
        self.socket.subscribe(b"kv@")
        self.socket.connect(endpoint)
        self.decoder = msgspec.msgpack.Decoder(Batch)
        self.known, self.numbers = {}, []

    def close(self):
        self.context.destroy(linger=0)

    def take(self):
        topic, number, payload = self.socket.recv_multipart()
        assert topic == b"kv@here@tiny" and len(number) == 8
        self.numbers.append(int.from_bytes(number, "big"))
        batch = self.decoder.decode(payload)
        assert abs(batch.ts - time.time()) < 600 and batch.data_parallel_rank == 0
        for event in batch.events:
            self.apply(event)

    def apply(self, event):
        if isinstance(event, AllBlocksCleared):
            self.known.clear()
        elif isinstance(event, BlockRemoved):
            for name in event.block_hashes:
                del self.known[name]
        else:
            parent = event.parent_block_hash
            assert event.block_size == kBlock and len(event.token_ids) == kBlock * len(event.block_hashes)
            for i, name in enumerate(event.block_hashes):
                self.known[name] = (parent, tuple(event.token_ids[kBlock * i:kBlock * (i + 1)]))
                parent = name

    def blocks_of(self, tokens):
        parent, count = None, 0
        while True:
            block = (parent, tuple(tokens[kBlock * count:kBlock * (count + 1)]))
            name = next((name for name, known in self.known.items() if known == block), None)
            if name is None:
                return count
            parent, count = name, count + 1


def ask(server, prompt):
    answer = httpx.post(server.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1}).json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_router_knows_what_is_cached(serve, tmp_path):
    endpoint, replay = f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay"
    with serve("--context", "512", "--kv-events", endpoint, "--kv-events-replay", replay, "--kv-events-topic",
               "kv@here@tiny", "--admin-socket", str(tmp_path / "admin")) as server:
        router = Router(endpoint)
        for i in range(200):  # until the subscription has arrived
            ask(server, [2 + i] * 33)
            if router.socket.poll(20):
                break
        first, second = list(range(2, 82)), list(range(2, 50)) + list(range(150, 200))
        ask(server, first)
        while router.blocks_of(first) < 5:
            router.take()
        ask(server, second)
        while router.blocks_of(second) < 6:
            router.take()
        assert router.blocks_of(first) == 5 and router.blocks_of(list(range(3, 80))) == 0
        assert router.numbers == list(range(router.numbers[0], router.numbers[-1] + 1))
        assert ask(server, first) == 79 or ask(server, first) >= 64

        asker = router.context.socket(zmq.DEALER)
        asker.setsockopt(zmq.RCVTIMEO, 60_000)
        asker.connect(replay)
        asker.send_multipart([b"", router.numbers[-1].to_bytes(8, "big")])
        _, number, payload = asker.recv_multipart()
        assert int.from_bytes(number, "big") == router.numbers[-1] and router.decoder.decode(payload).events
        while number != b"\xff" * 8:
            _, number, payload = asker.recv_multipart()
        assert payload == b""

        transport = httpx.HTTPTransport(uds=str(tmp_path / "admin"))
        with httpx.Client(transport=transport, base_url="http://admin", timeout=60) as admin:
            admin.post("/cache/reset")
        ask(server, [7] * 40)
        while router.blocks_of([7] * 40) < 2:
            router.take()
        assert router.blocks_of(first) == 0 and len(router.known) == 2
        assert server.metric("vllm:num_requests_running") == 0
        text = httpx.get(server.url + "/metrics").text
        assert "headrace:kv_events_dropped_total 0" in text and "headrace:kv_event_batches_total" in text
        router.close()


def test_an_endpoint_that_is_taken_is_told_of(model, serve, tmp_path):
    import subprocess
    from conftest import kBinary
    done = subprocess.run([kBinary, "serve", str(model), "--quiet", "--port", "0", "--kv-events", "tcp://256.1.1.1:1"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "cannot publish KV events at" in done.stderr


@pytest.fixture
def collector():
    spans = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
            for resource in body["resourceSpans"]:
                names = {each["key"]: each["value"]["stringValue"] for each in resource["resource"]["attributes"]}
                assert names["service.name"] == "headrace"
                for scope in resource["scopeSpans"]:
                    spans.extend(scope["spans"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()


def test_requests_are_spans_of_the_clients_traces(serve, collector):
    url, spans = collector
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with serve("--context", "256", "--otlp-endpoint", url, "--api-key", "secret-key") as server:
        key = {"Authorization": "Bearer secret-key"}
        body = {"prompt": "secret-prompt", "max_tokens": 3, "ignore_eos": True, "stream": True}
        httpx.post(server.url + "/v1/completions?secret-query", json=body,
                   headers=key | {"traceparent": f"00-{trace}-{parent}-01", "x-request-id": "traced"})
        httpx.post(server.url + "/v1/completions", json=body, headers=key | {"traceparent": f"00-{trace}-{parent}-00"})
        httpx.get(server.url + "/health", headers={"traceparent": f"00-{trace}-{parent}-01"})
        httpx.get(server.url + "/v1/models", headers=key | {"traceparent": "nonsense"})
        end = time.monotonic() + 60
        while len(spans) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1.2)  # what is not to come would have come
    assert [span["name"] for span in spans] == ["POST /v1/completions", "GET /v1/models"]
    span = spans[0]
    assert span["traceId"] == trace and span["parentSpanId"] == parent and span["kind"] == 2
    assert 0 < int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) < 60e9
    attributes = {each["key"]: list(each["value"].values())[0] for each in span["attributes"]}
    assert attributes["gen_ai.operation.name"] == "text_completion" and attributes["gen_ai.usage.output_tokens"] == "3"
    assert attributes["gen_ai.request.model"] == "tiny" and attributes["headrace.request.id"] == "traced"
    assert attributes["gen_ai.latency.time_to_first_token"] > 0 and attributes["http.response.status_code"] == "200"
    assert "parentSpanId" not in spans[1] and spans[1]["traceId"] != trace
    assert "secret" not in json.dumps(spans)


def test_a_collector_that_is_away_harms_nobody(serve):
    with serve("--context", "256", "--otlp-endpoint", "http://127.0.0.1:1") as server:
        for _ in range(20):
            assert httpx.post(server.url + "/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
        end = time.monotonic() + 60
        while "headrace:trace_spans_dropped_total 0" in httpx.get(server.url + "/metrics").text:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert server.stop() == 0
