"""What editors ask of /infill, as llama.vim and llama.vscode send it, against the real program."""

import concurrent.futures
import time

import httpx

kExtra = [{"text": "def add(a, b):\n    return a + b\n" * 3, "time": [1, 2], "filename": "calc.py"}]
# Before a completion, with the files that it will bring: for the cache alone.
kWarm = {"input_prefix": "", "input_suffix": "", "input_extra": kExtra, "prompt": "", "n_predict": 0, "temperature": 0.0,
         "stream": False, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1}
kFill = {"id_slot": 0, "input_prefix": "import math\n\ndef area(r):\n", "input_suffix": "\nprint(area(3))\n",
         "input_extra": kExtra, "prompt": "    return ", "n_predict": 24, "n_indent": 4, "top_k": 40, "top_p": 0.9,
         "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
         "t_max_predict_ms": 60_000, "seed": 1}
kTold = ["content", "timings/prompt_n", "timings/predicted_n", "timings/cache_n", "truncated", "tokens_cached"]


def ask(server, body, **more):
    response = httpx.post(server.url + "/infill", json={**body, **more}, timeout=60)
    assert response.status_code == 200, response.text
    assert "x-headrace-ignored" not in response.headers
    return response.json()


def test_the_files_that_were_sent_ahead_are_in_the_cache(filling):
    assert ask(filling, kWarm, response_fields=[""]) == {}
    told = ask(filling, kFill, samplers=["top_k", "top_p"], ignore_eos=True, response_fields=kTold)
    assert list(told) == kTold
    assert told["timings/cache_n"] >= 32
    assert told["timings/predicted_n"] >= 1


def test_an_answer_is_the_same_alone_and_beside_others(filling):
    alone = [ask(filling, kFill, seed=seed)["content"] for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda seed: ask(filling, kFill, seed=seed)["content"], range(8)))
    assert together == alone
    assert all(len(line) - len(line.lstrip(" \t")) >= 4 for text in alone for line in text.split("\n")[1:] if line)


def test_the_filter_leaves_fewer_answers(filling):
    """A model of random weights has no likely token: with the filter it ends, or takes one of few."""
    def answers(samplers):
        return {ask(filling, kFill, seed=seed, samplers=samplers, n_predict=2)["content"] for seed in range(30)}
    assert len(answers(["top_k", "top_p", "infill"])) < len(answers(["top_k", "top_p"]))


def test_the_line_in_which_the_time_is_over_is_the_last(filling):
    bias = {"n_predict": 300, "n_indent": 0, "samplers": ["temperature"], "temperature": 0}
    bias["logit_bias"] = [[httpx.post(filling.url + "/tokenize", json={"prompt": "\n", "add_special_tokens": False}).json()
                           ["tokens"][0], 100]]
    whole = ask(filling, kFill, **bias)
    assert whole["content"] == "\n" * 300
    began = time.monotonic()
    cut = ask(filling, kFill, **bias, t_max_predict_ms=1)
    assert set(cut["content"]) == {"\n"} and len(cut["content"]) < 300
    assert cut["stop_type"] == "limit" and cut["tokens_predicted"] == len(cut["content"])
    assert time.monotonic() - began < 60
