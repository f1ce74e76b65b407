"""The list of requests: what a real process keeps of those that ended, and for whom."""

import time

import httpx


def listed(server):
    response = httpx.get(server.url + "/api/headrace/requests")
    assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
    return response.json()


def wait_for(server, count):
    end = time.monotonic() + 60
    while len(listed(server)["finished"]) < count:
        assert time.monotonic() < end, "a request that ended is not in the list"
        time.sleep(0.02)
    return listed(server)["finished"]


def ask(server, prompt, ignore_eos=True, **fields):
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, **fields}
    return httpx.post(server.url + "/v1/completions", json=body)


def test_why_the_cache_had_no_more(serve):
    shared = list(range(3, 43))
    with serve("--context", "256") as server:
        for number, (prompt, fields) in enumerate([
            ([3, 4, 5], {}),  # shorter than a block
            (shared[1:], {}),  # new
            (shared[1:], {}),  # all found
            (shared[1:21] + [7] * 20, {}),  # goes on otherwise
            (shared[1:], {"echo": True, "logprobs": 1}),  # scored
        ]):
            assert ask(server, prompt, ignore_eos=True, **fields).status_code == 200
            wait_for(server, number + 1)
        rows = list(reversed(wait_for(server, 5)))
        assert [row.get("cache_miss") for row in rows] == ["short", "new", None, "differs", "scored"]
        assert rows[1]["cached_tokens"] == 0 and rows[2]["cached_tokens"] >= 32 and rows[3]["cached_tokens"] >= 16
        for row in rows:
            assert row["output_tokens"] == 4 and row["finish"] == "length" and row["route"] == "/v1/completions"
            assert 0 <= row["queue_ms"] <= row["first_token_ms"] <= row["total_ms"] < 60_000
        assert listed(server)["running"] == []


def test_the_list_is_bounded_and_holds_no_text(serve):
    with serve("--context", "256") as server:
        for _ in range(205):
            assert ask(server, "a secret text", max_tokens=-1).status_code == 400
        rows = wait_for(server, 200)
        assert len(rows) == 200 and {row["status"] for row in rows} == {400}
        assert "secret" not in httpx.get(server.url + "/api/headrace/requests").text
