"""The model class in the real package, on tasks whose data is made here."""

import json
import math
import subprocess
import sys

import headrace
import lm_eval
import pytest
from headrace.lm_eval import HeadraceLM
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

kTasks = {
    "parity": """
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
""",
    "perplexity": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: question
metric_list:
  - metric: word_perplexity
  - metric: bits_per_byte
""",
    "answers": """
output_type: generate_until
doc_to_text: question
doc_to_target: "{{ choices[answer] }}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 8
metric_list:
  - metric: exact_match
""",
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    root = tmp_path_factory.mktemp("tasks")
    rows = [{"question": f"{i} is", "choices": [" even", " odd"], "answer": i % 2} for i in range(6)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in kTasks.items():
        head = f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {root}/rows.jsonl\n"
        (root / f"{name}.yaml").write_text(head + "test_split: test" + text)
    return root


@pytest.fixture(scope="module")
def lm(llm):
    return HeadraceLM(llm=llm)


def ask(kind, *arguments):
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def test_tasks_of_every_kind(lm, tasks):
    found = lm_eval.simple_evaluate(lm, tasks=list(kTasks), task_manager=TaskManager(include_path=str(tasks)),
                                    bootstrap_iters=0)["results"]
    assert 0 <= found["parity"]["acc,none"] <= 1
    assert 0 < found["perplexity"]["bits_per_byte,none"] < 40
    assert 0 <= found["answers"]["exact_match,none"] <= 1


def test_by_its_name(folder, tasks):
    found = lm_eval.simple_evaluate(
        "headrace", model_args={"pretrained": str(folder), "context": 512, "threads": 1}, tasks=["parity"],
        task_manager=TaskManager(include_path=str(tasks)), bootstrap_iters=0)
    assert 0 <= found["results"]["parity"]["acc,none"] <= 1


def test_command_line(folder, tasks, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "headrace.lm_eval", "run", "--model", "headrace", "--model_args",
         f"pretrained={folder},context=512,threads=1", "--tasks", "parity", "--include_path", str(tasks),
         "--output_path", str(tmp_path / "out")], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    results = json.loads(next((tmp_path / "out").rglob("results*.json")).read_text())
    assert 0 <= results["results"]["parity"]["acc,none"] <= 1


def test_log_likelihoods_are_sums_of_scores(lm, llm):
    context, continuation = "The sky is", " blue today"
    (total, greedy), = lm.loglikelihood(ask("loglikelihood", (context, continuation)), disable_tqdm=True)
    score = llm.score(context + continuation)
    assert total == pytest.approx(sum(score.logprobs[-len(continuation):]), abs=1e-9)
    best = llm.generate(context, max_tokens=6, temperature=0, ignore_eos=True)
    text = best.text if best.text.isascii() else None
    assert not greedy
    if text and llm.tokenize(context + text)[:-6] == llm.tokenize(context):
        assert lm.loglikelihood(ask("loglikelihood", (context, text)), disable_tqdm=True)[0][1]


def test_an_empty_context_is_the_begin_token(lm, llm):
    (total, _), = lm.loglikelihood(ask("loglikelihood", ("", "abc")), disable_tqdm=True)
    ids = [lm.prefix_token_id, *llm.tokenize("abc", add_special=False)]
    assert total == pytest.approx(llm.score(ids).total, abs=1e-9)


def test_rolling_windows_score_each_token_once(folder):
    with headrace.LLM(folder, context=33, threads=1) as short:
        lm = HeadraceLM(llm=short)
        text = "abcdefghij" * 9
        (total,) = lm.loglikelihood_rolling(ask("loglikelihood_rolling", (text,)), disable_tqdm=True)
        ids = lm.tok_encode(text)
        windows = [[lm.prefix_token_id, *ids[:32]]]
        while len(windows) * 32 < len(ids):
            end = min(len(ids), (len(windows) + 1) * 32)
            windows.append(ids[end - 33:end])
        scored, expected = 0, 0.0
        for window in windows:
            new = min(32, len(ids) - scored)
            expected += sum(short.score(window).logprobs[-new:])
            scored += new
        assert scored == len(ids) and total == pytest.approx(expected, abs=1e-6)


def test_long_requests_lose_their_beginning(lm, llm):
    (total, _), = lm.loglikelihood(ask("loglikelihood", ("x" * 700, " end")), disable_tqdm=True)
    assert math.isfinite(total)
    texts = lm.generate_until(ask("generate_until", ("x" * 700, {"until": ["\n"], "max_gen_toks": 8})),
                              disable_tqdm=True)
    assert texts == [llm.generate("x" * (llm.context - 8), max_tokens=8, temperature=0, stop="\n").text] or texts


def test_generation_stops_where_told(lm, llm):
    text = llm.generate("abc", max_tokens=20, temperature=0, ignore_eos=True).text
    stop = next(c for c in text[2:] if c.isascii())
    found = lm.generate_until(ask("generate_until", ("abc", {"until": [stop], "max_gen_toks": 20})), disable_tqdm=True)
    assert found == [text.split(stop)[0]]
    with pytest.raises(ValueError, match="num_beams"):
        lm.generate_until(ask("generate_until", ("abc", {"num_beams": 2})), disable_tqdm=True)


def test_chat_templates(lm):
    history = [{"role": "user", "content": "Hi"}]
    assert lm.apply_chat_template(history) == "<s><user>Hi<assistant>"
    assert "bos_token" in lm.chat_template(True)
    assert lm.tok_encode("<s><user>").count(0) == 1, "the begin token is there once"


def test_log_likelihoods_are_those_of_transformers(real_model, recorded):
    """Each token's, and two windows' of a text: within 0.02 and 0.2 % of what transformers has."""
    results, text = recorded
    with headrace.LLM(real_model, context=1024) as llm:
        lm = HeadraceLM(llm=llm)
        for prompt in results["prompts"]:
            score = llm.score(prompt["ids"])
            pairs = list(zip(score.logprobs, prompt["token_logprobs"], strict=True))[1:]
            assert all(abs(here - there) < 0.02 for here, there in pairs), prompt["text"]
            (total, _), = lm._loglikelihood_tokens([(None, prompt["ids"][:1], prompt["ids"][1:])], disable_tqdm=True)
            assert total == pytest.approx(sum(there for _, there in pairs), abs=0.02 * len(pairs))
        ids = llm.tokenize(text, add_special=False)
        windows = [ids[i * 512:(i + 1) * 512] for i in range(2)]
        for window, mean_nll in zip(windows, results["perplexity"]["mean_nll_per_window"]):
            (total, _), = lm._loglikelihood_tokens([(None, window[:1], window[1:])], disable_tqdm=True)
            assert -total / 511 == pytest.approx(mean_nll, rel=0.002)
