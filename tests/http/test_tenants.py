"""Tenants: who shares the engine with whom, by --tenants, and what a flood of one leaves to another."""

import concurrent.futures
import re
import signal
import subprocess
import time

import httpx
import pytest

from conftest import kBinary

kTenants = """
[flood]
keys = ["ann", "ada"]
cache = "shared"
[house]
weight = 2
guarantee = 0.25
burst = 5
[quiet]
parent = "house"
keys = ["bob", "ben"]
"""


@pytest.fixture(scope="module")
def keys():
    """Name to (line of the file, key)."""
    made = {}
    for name in ("ann", "ada", "bob", "ben", "eve"):
        done = subprocess.run([kBinary, "key", name, "--scopes", "inference,metrics"], capture_output=True, text=True,
                              timeout=60)
        made[name] = (done.stdout, done.stderr.removeprefix("key: ").strip())
    return made


@pytest.fixture
def files(keys, tmp_path):
    (tmp_path / "keys").write_text("".join(line for line, _ in keys.values()))
    (tmp_path / "tenants.toml").write_text(kTenants)
    return tmp_path


@pytest.fixture
def server(serve, files):
    with serve("--context", "512", "--max-sequences", "4", "--api-key-file", str(files / "keys"), "--tenants",
               str(files / "tenants.toml")) as running:
        yield running


def post(server, key, **body):
    answer = httpx.post(server.url + "/v1/completions", headers={"Authorization": f"Bearer {key[1]}"}, timeout=600,
                        json={"prompt": "a", "max_tokens": 8, "ignore_eos": True, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def metrics(server, key, name):
    """Tenant to value."""
    text = httpx.get(server.url + "/metrics", headers={"Authorization": f"Bearer {key[1]}"}).text
    return {tenant: float(value) for tenant, value in re.findall(rf'^{name}\{{.*tenant="(.*?)"\}} (\S+)$', text, re.M)}


def wait_for_requests(server, keys, state, calls):
    """Until the tenant flood has some in this state."""
    while metrics(server, keys["eve"], f"headrace:tenant_requests_{state}")["flood"] == 0:
        assert not any(call.done() for call in calls), [call.result() for call in calls if call.done()]
        time.sleep(0.01)


def reload(server, message):
    seen = len(server.errors)
    server.process.send_signal(signal.SIGHUP)
    wait_for(server, message, seen)


def wait_for(server, message, seen=0):
    end = time.monotonic() + 60
    while not any(message in line for line in server.errors[seen:]):
        assert time.monotonic() < end and server.process.poll() is None, "".join(server.errors)
        time.sleep(0.02)


def test_a_flood_of_one_tenant_does_not_starve_another(server, keys):
    order = []

    def ask(name, **body):
        done = post(server, keys[name], **body)
        order.append(name)
        return done["usage"]

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        floods = [pool.submit(ask, name, prompt=["a"] * 6, n=16, max_tokens=480) for name in ("ann", "ada")]
        wait_for_requests(server, keys, "waiting", floods)
        quiet = [pool.submit(ask, "bob", max_tokens=20).result() for _ in range(3)]
        assert order == ["bob"] * 3
        assert [usage["completion_tokens"] for usage in quiet] == [20] * 3
        for flood in floods:
            assert flood.result()["completion_tokens"] == 96 * 480
    tokens = metrics(server, keys["eve"], "headrace:tenant_tokens_total")
    assert set(tokens) == {"flood", "house", "quiet", "other"}
    assert tokens["flood"] >= 2 * 96 * 479 and 3 * 19 <= tokens["quiet"] == tokens["house"] < 1000
    assert tokens["other"] == 0
    assert metrics(server, keys["eve"], "headrace:tenant_step_seconds_total")["quiet"] > 0
    for name in ("running", "waiting"):
        assert set(metrics(server, keys["eve"], f"headrace:tenant_requests_{name}").values()) == {0}


def test_keys_share_a_cache_where_their_tenant_says_so(server, keys):
    prompt = "what all of them begin with " * 8

    def cached(name):
        return post(server, keys[name], prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("ann") == 0 and cached("ada") > 0
    assert cached("bob") == 0 and cached("bob") > 0
    assert cached("ben") == 0  # separate, though of one tenant
    assert cached("eve") == 0  # of none


def test_tenants_change_while_requests_run(server, keys, files):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = pool.submit(post, server, keys["ann"], prompt=["a"] * 6, n=16, max_tokens=480)
        wait_for_requests(server, keys, "running", [long])
        (files / "tenants.toml").write_text('[all]\nkeys = ["ann", "bob"]\n')
        reload(server, "read 1 tenants again")
        post(server, keys["bob"])
        assert set(metrics(server, keys["eve"], "headrace:tenant_tokens_total")) == {"all", "other"}

        (files / "tenants.toml").write_text('[all]\nkeys = ["ann", "bob"]\n[more]\nweight = "x"\n')
        reload(server, "the tenants stay as they were")
        wait_for(server, "tenants.toml, line 4: weight of tenant 'more' must be a number")
        post(server, keys["bob"])
        assert set(metrics(server, keys["eve"], "headrace:tenant_tokens_total")) == {"all", "other"}
        assert long.result()["usage"]["completion_tokens"] == 96 * 480


def test_without_a_file_there_are_no_series_of_tenants(serve, files, keys):
    with serve("--context", "256", "--api-key-file", str(files / "keys")) as server:
        post(server, keys["ann"])
        assert metrics(server, keys["ann"], "headrace:tenant_tokens_total") == {}


def test_a_start_with_wrong_tenants_says_what_is_wrong(model, files):
    def start(*options):
        done = subprocess.run([kBinary, "serve", str(model), "--port", "0", *options], capture_output=True, text=True,
                              timeout=120)
        assert done.returncode != 0 and "listening" not in done.stdout
        return done.stderr

    tenants = ("--tenants", str(files / "tenants.toml"))
    assert "needs --api-key-file with keys that have names" in start(*tenants)
    (files / "tenants.toml").write_text('[a]\nkeys = ["zoe"]\n')
    told = start("--api-key-file", str(files / "keys"), *tenants)
    assert "tenants.toml, line 2: tenant 'a' has the key 'zoe', but no key of --api-key-file has that name" in told
