"""Guessed tokens: answers are those without, drawn or not, whoever guesses; what cannot guess is refused."""

import json
import shutil
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

import tiny_model
from conftest import kBinary, kRepository

kText = "one two three four five six. " * 6
kPrompts = [f"Repeat this: {kText}", "The capital of France is", f"A list: 1, 2, 3, 4, 5, {kText}", "x" * 40]


class Server:
    def __init__(self, model, *options):
        context = [] if "--context" in options else ["--context", "1024"]
        self.process = subprocess.Popen([kBinary, "serve", str(model), "--port", "0", "--quiet", *context, *map(str, options)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[-1]

    def get(self, path, body=None):
        request = urllib.request.Request(self.url + path, data=body and json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as response:
            return response.read().decode()

    def answer(self, prompt, temperature):
        choice = json.loads(self.get("/v1/completions", {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "seed": 3,
                                                         "temperature": temperature, "logprobs": 1}))["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    def guesses(self, drafter):
        return [sum(float(line.split()[-1]) for line in self.get("/metrics").splitlines()
                    if line.startswith(f"vllm:spec_decode_num_{what}_tokens_total") and f'drafter="{drafter}"' in line)
                for what in ("draft", "accepted")]

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


def ask(model, prompts, *options):
    """Of a server with these options: each request alone, then all at once."""
    server = Server(model, *options)
    cases = [(prompt, temperature) for prompt in prompts for temperature in (0, 0.8)]
    alone = [server.answer(*case) for case in cases]
    with ThreadPoolExecutor(len(cases)) as pool:
        together = list(pool.map(lambda case: server.answer(*case), cases))
    guesses = {name: server.guesses(name) for name in ("ngram", "draft", "mtp")}
    server.stop()
    assert together == alone
    return alone, guesses


@pytest.fixture(scope="module")
def answers(model):
    return lambda *options: ask(model, kPrompts, *options)


@pytest.fixture(scope="module", params=("glm4_moe", "qwen3_next"))
def model_with_head(request, tmp_path_factory):
    """A recorded checkpoint with a prediction head, one of them with state, and a tokenizer of which it knows the first 96
    bytes."""
    folder = tmp_path_factory.mktemp("head") / request.param
    shutil.copytree(kRepository / "build/golden/heads" / request.param, folder)
    tiny_model.write_tokenizer(folder, tiny_model.kTemplate, [])
    return folder


def test_answers_are_those_without_guesses(answers, model):
    expected, none = answers("--speculation", "off")
    assert none == {"ngram": [0, 0], "draft": [0, 0], "mtp": [0, 0]}
    # How many guesses pay depends on times that are measured: here it may be none (test_draft counts them without).
    found, guesses = answers("--speculation", "ngram")
    assert found == expected
    assert guesses["ngram"][1] <= guesses["ngram"][0] and guesses["draft"] == [0, 0]
    # The model drafts for itself: what it says comes true.
    found, guesses = answers("--draft-model", model)
    assert found == expected
    made, right = guesses["draft"]
    assert right >= 0.9 * made


def test_a_draft_needs_a_model(headrace, model):
    done = headrace("run", model, "Hi", "--speculation", "draft")
    assert done.returncode == 2
    assert done.stderr == "headrace: --speculation is draft, which needs --draft-model, a smaller model\n"


def test_who_guesses_is_told_unless_quiet(headrace, model):
    words = ["run", model, "Hi", "--draft-model", model, "--max-tokens", 2]
    assert f"{model} guesses for {model}" in headrace(*words).stderr
    quiet = headrace(*words, "--quiet")
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_a_head_of_the_checkpoint_guesses(model_with_head):
    prompts = ["A LIST: 1, 2, 3", "XYZ " * 12, "Q" * 5]
    context = ("--context", "128")
    expected, none = ask(model_with_head, prompts, *context, "--speculation", "off")
    assert none["mtp"] == [0, 0]
    for options in ((), ("--speculation", "mtp")):  # it is part of the default
        found, guesses = ask(model_with_head, prompts, *context, *options)
        assert found == expected
        made, right = guesses["mtp"]
        assert right <= made
    assert made > 0  # tries, if nothing pays


def test_who_names_a_head_needs_one(headrace, model):
    done = headrace("run", model, "Hi", "--speculation", "mtp")
    assert done.returncode == 2
    assert done.stderr == (f"headrace: --speculation names mtp, but {model} has no head for further tokens that can be used: there is "
                           "none (leave mtp out)\n")


def test_inspect_tells_of_a_head(headrace, model, model_with_head):
    assert json.loads(headrace("inspect", model_with_head, "--json").stdout)["model"]["prediction_head"] is True
    assert "prediction_head" not in json.loads(headrace("inspect", model, "--json").stdout)["model"]
