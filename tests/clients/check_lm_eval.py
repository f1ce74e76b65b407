"""lm-evaluation-harness against the server, and its log-likelihoods beside those of transformers on the same weights."""

import json
import os
import re
from pathlib import Path

import httpx
import pytest

from conftest import http_support
from programs import run

kRows = 60
kSmolLm = Path(os.environ.get("HEADRACE_TEST_MODELS", http_support.kRepository / "build/models")) / "smollm2-135m.gguf"


@pytest.fixture
def lm_eval(tmp_path):
    """Runs a task of multiple choices over these rows, or of free answers; returns its results and samples."""

    def evaluate(name, model, arguments, rows, *options, output_type="multiple_choice", **task):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        described = {"task": "local", "dataset_path": "json", "test_split": "test", "output_type": output_type,
                     "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}}, "doc_to_text": "question",
                     "doc_to_target": "answer", **task}
        (folder / "local.yaml").write_text(json.dumps(described))  # which is YAML too
        run("lm_eval", "run", "--model", model, "--model_args", arguments, "--tasks", "local", "--include_path", folder,
            "--output_path", folder / "out", "--log_samples", *options, cwd=folder)
        results = json.loads(next(folder.rglob("results*.json")).read_text())["results"]["local"]
        samples = [json.loads(line) for line in next(folder.rglob("samples*.jsonl")).read_text().splitlines()]
        return results, sorted(samples, key=lambda sample: sample["doc_id"])

    return evaluate


def accuracy(*names):
    return {"doc_to_choice": "choices", "metric_list": [{"metric": name} for name in names]}


def completions(url, model, **more):
    given = {"model": model, "base_url": f"{url}/v1/completions", "tokenizer_backend": "remote",
             "tokenized_requests": True, "max_length": 512, **more}
    return ",".join(f"{name}={value}" for name, value in given.items())


def test_lm_eval_scores_choices(server, lm_eval):
    """Log-likelihoods by echo, with token ids made by the server's own tokenizer."""
    rows = [{"question": f"{i} is", "choices": [" even", " odd"], "answer": i % 2} for i in range(6)]
    results, samples = lm_eval("tiny", "local-completions", completions(server.url, "tiny"), rows, **accuracy("acc"))
    assert 0 <= results["acc,none"] <= 1 and len(samples) == 6


@pytest.mark.parametrize("model", ["local-completions", "local-chat-completions"])
def test_lm_eval_generates(server, lm_eval, model):
    rows = [{"question": f"{i} and 1 is", "answer": "Plain text."} for i in range(4)]
    chats = model == "local-chat-completions"
    path = "chat/completions" if chats else "completions"
    arguments = f"model=script,base_url={server.url}/v1/{path},num_concurrent=2,max_length=512"
    if not chats:
        arguments += ",tokenizer_backend=remote"
    results, samples = lm_eval("generation", model, arguments, rows, *(["--apply_chat_template"] if chats else []),
                               output_type="generate_until", metric_list=[{"metric": "exact_match"}],
                               generation_kwargs={"until": ["\n\n"], "max_gen_toks": 16, "temperature": 0})
    assert len(samples) == 4
    if chats:
        assert results["exact_match,none"] == 1


def sentences():
    """Of the project's own documents, long enough to be cut in two."""
    text = " ".join(path.read_text() for path in sorted((http_support.kRepository / "docs/adr").glob("*.md")))
    found = re.findall(r"(?<=[.] )[A-Z][^.#|`*\[\]]{80,160}[.]", re.sub(r"\s+", " ", text))
    return [sentence.split() for sentence in found]


def continuations():
    """The end of a sentence among the ends of others."""
    words = sentences()[:: max(1, len(sentences()) // (kRows + 3))]
    ends = [" " + " ".join(each[len(each) // 2:]) for each in words]
    return [{"question": " ".join(words[i][: len(words[i]) // 2]), "answer": i % 4,
             "choices": [ends[i + (j - i) % 4] for j in range(4)]} for i in range(min(kRows, len(words) - 3))]


def test_log_likelihoods_are_those_of_transformers(lm_eval):
    """The same GGUF file, computed by both: every log-likelihood, and what is made of them."""
    if not kSmolLm.exists():
        pytest.skip(f"needs {kSmolLm}")
    rows = continuations()
    assert len(rows) == kRows
    metrics = accuracy("acc", "acc_norm")
    hf = f"pretrained={kSmolLm.parent},gguf_file={kSmolLm.name},dtype=float32"
    theirs, expected = lm_eval("transformers", "hf", hf, rows, "--device", "cpu", "--batch_size", "4", **metrics)
    server = http_support.Server(kSmolLm, "--context", "512")
    try:
        name = httpx.get(server.url + "/v1/models").json()["data"][0]["id"]
        ours, found = lm_eval("headrace", "local-completions", completions(server.url, name), rows, **metrics)
    finally:
        server.stop()
    for metric in ("acc,none", "acc_norm,none"):
        assert abs(ours[metric] - theirs[metric]) <= 0.002, (metric, ours, theirs)
    values = [[float(answer[0]) for sample in samples for answer in sample["filtered_resps"]]
              for samples in (found, expected)]
    largest = max(abs(a - b) for a, b in zip(*values, strict=True))
    print(f"{len(values[0])} log-likelihoods, the largest difference is {largest:.4f}; {ours['acc,none']}")
    assert largest < 0.2
