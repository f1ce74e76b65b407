"""What one tenant can learn of another's prompts from the time that its own take: nothing."""

import random
import time

import httpx

import tiny_model

kProbes = 2000
kControls = 200
kLengths = [8, 64, 256, 1024]


def auc(slower, faster):
    """The chance that one of `slower` is above one of `faster`, ties for half."""
    ranked = sorted([(value, 1) for value in slower] + [(value, 0) for value in faster])
    total, below, i = 0.0, 0, 0
    while i < len(ranked):
        j = i
        while j < len(ranked) and ranked[j][0] == ranked[i][0]:
            j += 1
        equal = [kind for _, kind in ranked[i:j]]
        total += equal.count(1) * (below + equal.count(0) / 2)
        below += equal.count(0)
        i = j
    return total / (len(slower) * len(faster))


def test_another_tenants_cache_cannot_be_timed(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("victim-key\nspy-key\n")
    rng = random.Random(3)

    model = tiny_model.write(tmp_path / "tiny", context=2048)
    with serve("--context", "2048", "--api-key-file", str(keys), model=model) as server, \
            httpx.Client(timeout=60) as client:
        def ask(key, prompt):
            begin = time.perf_counter()
            answer = client.post(server.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1},
                                 headers={"Authorization": f"Bearer {key}"})
            elapsed = time.perf_counter() - begin
            assert answer.status_code == 200
            return elapsed, answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        def prompt(length):
            return [rng.randrange(2, 250) for _ in range(length)]

        def probes(victim, spy, count, lengths):
            """Times of prompts that the victim has sent before, and of those that it has not."""
            known, unknown, most_cached = [], [], 0
            for i in range(count):
                secret = prompt(rng.choice(lengths))
                if i % 2:
                    ask(victim, secret)
                else:
                    ask(victim, prompt(len(secret)))  # as much work, of something else
                elapsed, cached = ask(spy, secret)
                (known if i % 2 else unknown).append(elapsed)
                most_cached = max(most_cached, cached)
            return auc(unknown, known), most_cached

        probes("victim-key", "spy-key", 20, [64])  # warm
        across, cached = probes("victim-key", "spy-key", kProbes, kLengths)
        assert cached <= 4 and 0.45 <= across <= 0.55, (cached, across)  # a few ids that its own prompts began with
        control, cached = probes("spy-key", "spy-key", kControls, [1900])
        print(f"AUC between tenants {across:.3f}, of one tenant's own {control:.3f}")
        assert cached > 1800 and control >= 0.95, (cached, control)
