"""Keys and values in memory and on disk behind the cache: prompts come back, with the bytes that computing them gives."""

import os
import random
import signal
import subprocess
import threading
import time

import httpx
import pytest

import tiny_model
from conftest import kBinary

kKills = 1000 if os.environ.get("HEADRACE_FULL") == "1" else 30
kContext = 1024


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("tiers") / "tiny", context=kContext)


def prompts(seed, count, length):
    rng = random.Random(seed)
    return [[rng.randrange(2, 250) for _ in range(length)] for _ in range(count)]


def ask(server, prompt, key="none"):
    """The answer without its id and time, and how many of the prompt's tokens were cached."""
    answer = httpx.post(server.url + "/v1/completions", json={
        "prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 3, "ignore_eos": True},
        headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return body["choices"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def cold_answers(serve, tiny, asked, *options):
    with serve("--context", str(kContext), *options, model=tiny) as server:
        return [ask(server, prompt)[0] for prompt in asked]


def bytes_in(folder):
    return sum(path.stat().st_size for path in folder.rglob("*.kv"))


def test_prompts_come_back_after_a_restart(serve, tiny, tmp_path):
    asked = prompts(1, 4, 900)
    expected = cold_answers(serve, tiny, asked)
    store = tmp_path / "store"
    options = ["--context", str(kContext), "--kv-disk", str(store)]
    with serve(*options, model=tiny) as server:
        assert [ask(server, prompt) for prompt in asked] == [(answer, 0) for answer in expected]
        assert server.stop() == 0
    with serve(*options, model=tiny) as server:
        for prompt, answer in zip(asked, expected, strict=True):
            assert ask(server, prompt) == (answer, 896)
        # The beginning of a prompt, with another end.
        changed = [*asked[0][:500], *prompts(2, 1, 100)[0]]
        assert ask(server, changed)[1] == 496
        assert server.metric("headrace:kv_tier_read_blocks_total") == 4 * 56
        assert server.metric("headrace:kv_tier_restored_tokens_total") == 4 * 896
        assert server.metric("headrace:kv_tier_disk_bytes") > 0
    assert oct(store.stat().st_mode & 0o777) == "0o700"


def test_a_key_finds_its_own_after_a_restart(serve, tiny, tmp_path):
    (tmp_path / "keys").write_text("one\ntwo\n")
    prompt = prompts(9, 1, 300)[0]
    options = ["--context", str(kContext), "--kv-disk", str(tmp_path / "store"),
               "--api-key-file", str(tmp_path / "keys")]
    expected = None
    for cached_of_one in [0, 288, 288]:
        with serve(*options, model=tiny) as server:
            answer, cached = ask(server, prompt, "one")
            assert (answer, cached) == (expected or answer, cached_of_one)
            expected = answer
            if cached_of_one == 0:
                assert server.stop() == 0
    with serve(*options, model=tiny) as server:
        assert ask(server, prompt, "two") == (expected, 0)


def test_other_options_find_nothing_and_spoil_nothing(serve, tiny, tmp_path):
    asked = prompts(3, 2, 300)
    store = str(tmp_path / "store")

    def run(*options):
        with serve("--context", str(kContext), "--kv-disk", store, "--log-level", "info", *options,
                   model=tiny) as server:
            given = [ask(server, prompt) for prompt in asked]
            assert server.stop() == 0
            return [cached for _, cached in given], [answer for answer, _ in given], "".join(server.errors)

    cached, expected, _ = run("--kv-type", "f16")
    assert cached == [0, 0]
    cached, _, log = run("--kv-type", "f32")
    assert cached == [0, 0]
    assert "is not used and left alone: " in log
    assert "kv type f16, here f32" in log
    cached, answers, _ = run("--kv-type", "f16")
    assert (cached, answers) == ([288, 288], expected)


def test_one_process_writes(serve, tiny, tmp_path):
    prompt = prompts(4, 1, 300)[0]
    options = ["--context", str(kContext), "--kv-disk", str(tmp_path / "store")]
    with serve(*options, model=tiny) as first, serve(*options, model=tiny) as second:
        answer, _ = ask(first, prompt)
        assert ask(second, prompt) == (answer, 0)
        assert ask(second, prompt)[0] == answer
        assert second.metric("headrace:kv_tier_disk_blocks") == 0
        second.stop(signal.SIGKILL)
        assert "is in use by another process" in "".join(second.errors)


def test_memory_gives_back_what_the_cache_had_no_room_for(serve, tiny):
    asked = prompts(5, 12, 400)
    expected = cold_answers(serve, tiny, asked)
    with serve("--context", "512", "--kv-memory", "512K", "--kv-ram", "8M", model=tiny) as server:
        for _ in range(3):
            for prompt, answer in zip(asked, expected, strict=True):
                assert ask(server, prompt)[0] == answer
        assert server.metric("headrace:kv_tier_restored_tokens_total") > 12 * 300
        assert 0 < server.metric("headrace:kv_tier_ram_bytes") <= 8 << 20


def test_the_folder_stays_below_its_size(serve, tiny, tmp_path):
    store = tmp_path / "store"
    asked = prompts(6, 20, 600)
    options = ["--context", str(kContext), "--kv-disk", str(store), "--kv-disk-size", "1M"]
    for _ in range(2):
        with serve(*options, model=tiny) as server:
            for prompt in asked:
                ask(server, prompt)
            assert server.stop() == 0
        assert (1 << 18) < bytes_in(store) <= 1 << 20


def test_bad_folders_and_sizes_are_refused(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for options, message in [(["--kv-disk", str(tmp_path / "file")], "cannot open the folder"),
                             (["--kv-disk", str(tmp_path / "open")], "nobody else may write to it"),
                             (["--kv-disk", str(tmp_path / "s"), "--kv-disk-size", "1K"], "--kv-disk-size is 1024"),
                             (["--kv-ram", "1"], "--kv-ram is 1 bytes")]:
        ended = subprocess.run([kBinary, "serve", str(tiny), "--port", "0", *options], capture_output=True, text=True,
                               timeout=120, check=False)
        assert ended.returncode != 0
        assert message in ended.stderr


def test_a_kill_at_any_time_costs_misses_only(serve, tiny, tmp_path):
    """Each server is killed while it stores and restores; what the next one gives is what a cold one gives."""
    asked = prompts(7, 24, 200)
    expected = cold_answers(serve, tiny, asked)
    rng = random.Random(8)
    num_restored = 0
    options = ["--context", str(kContext), "--kv-disk", str(tmp_path / "store"), "--kv-disk-size", "4M"]
    for kill in range(kKills):
        with serve(*options, model=tiny) as server:
            sample = rng.sample(range(len(asked)), 3)
            for i in sample:
                answer, cached = ask(server, asked[i])
                assert answer == expected[i], f"after {kill} kills, {cached} tokens cached"
                num_restored += cached
            others = [threading.Thread(target=ask_until_killed, args=(server, asked[rng.randrange(len(asked))]))
                      for _ in range(4)]
            for thread in others:
                thread.start()
            time.sleep(rng.random() * 0.03)
            server.stop(signal.SIGKILL)
            for thread in others:
                thread.join()
    assert num_restored > kKills * 100


def ask_until_killed(server, prompt):
    try:
        ask(server, prompt)
    except httpx.HTTPError:
        pass
