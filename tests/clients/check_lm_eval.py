"""lm-evaluation-harness against the server, and its log-likelihoods beside those of transformers on the same weights."""

import json
import os
import re
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import httpx  # noqa: E402
import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
import pytest  # noqa: E402

from conftest import http_support  # noqa: E402

kRows = 40
kSmolLm = Path(os.environ.get("HEADRACE_TEST_MODELS", http_support.kRepository / "build/models")) / "smollm2-135m.gguf"


@pytest.fixture
def evaluate(tmp_path):
    """Runs a task over these rows, and returns its results and samples. The harness's own tasks are left out: reading
    their descriptions takes minutes."""

    def run(name, model, arguments, rows, output_type="multiple_choice", chats=False, batch_size=1, **task):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        described = {"task": "local", "dataset_path": "json", "test_split": "test", "output_type": output_type,
                     "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}}, "doc_to_text": "question",
                     "doc_to_target": "answer", **task}
        (folder / "local.yaml").write_text(json.dumps(described))  # which is YAML too
        manager = lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False)
        found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=["local"], task_manager=manager,
                                        log_samples=True, apply_chat_template=chats, batch_size=batch_size, device="cpu",
                                        bootstrap_iters=0)
        return found["results"]["local"], sorted(found["samples"]["local"], key=lambda sample: sample["doc_id"])

    return run


def accuracy(*names):
    return {"doc_to_choice": "choices", "metric_list": [{"metric": name} for name in names]}


def completions(url, model, **more):
    given = {"model": model, "base_url": f"{url}/v1/completions", "tokenizer_backend": "remote",
             "tokenized_requests": True, "max_length": 512, **more}
    return ",".join(f"{name}={value}" for name, value in given.items())


def test_lm_eval_scores_choices(server, evaluate):
    """Log-likelihoods by echo, with token ids made by the server's own tokenizer."""
    rows = [{"question": f"{i} is", "choices": [" even", " odd"], "answer": i % 2} for i in range(6)]
    results, samples = evaluate("tiny", "local-completions", completions(server.url, "tiny"), rows, **accuracy("acc"))
    assert 0 <= results["acc,none"] <= 1 and len(samples) == 6


@pytest.mark.parametrize("model", ["local-completions", "local-chat-completions"])
def test_lm_eval_generates(server, evaluate, model):
    rows = [{"question": f"{i} and 1 is", "answer": "Plain text."} for i in range(4)]
    chats = model == "local-chat-completions"
    path = "chat/completions" if chats else "completions"
    arguments = f"model=script,base_url={server.url}/v1/{path},num_concurrent=2,max_length=512"
    if not chats:
        arguments += ",tokenizer_backend=remote"
    results, samples = evaluate("generation", model, arguments, rows, "generate_until", chats,
                                metric_list=[{"metric": "exact_match"}],
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


@pytest.fixture
def smollm(tmp_path):
    """SmolLM2 as a folder of float32 weights, so that nothing but the arithmetic differs."""
    import transformers

    if not kSmolLm.exists():
        pytest.skip(f"needs {kSmolLm}")
    source = dict(pretrained_model_name_or_path=kSmolLm.parent, gguf_file=kSmolLm.name)
    transformers.AutoModelForCausalLM.from_pretrained(**source, dtype="float32").save_pretrained(tmp_path / "smollm")
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(tmp_path / "smollm")
    return tmp_path / "smollm"


def test_log_likelihoods_are_those_of_transformers(evaluate, smollm):
    rows = continuations()
    assert len(rows) == kRows
    metrics = accuracy("acc", "acc_norm")
    theirs, expected = evaluate("transformers", "hf", f"pretrained={smollm},dtype=float32", rows, batch_size=4, **metrics)
    server = http_support.Server(smollm, "--context", "512")
    try:
        ours, found = evaluate("headrace", "local-completions", completions(server.url, "smollm"), rows, **metrics)
    finally:
        server.stop()
    values = [[float(answer[0]) for sample in samples for answer in sample["filtered_resps"]]
              for samples in (found, expected)]
    largest = max(abs(a - b) for a, b in zip(*values, strict=True))
    print(f"{len(values[0])} log-likelihoods differ by at most {largest:.5f}; accuracy {ours['acc,none']:.3f}")
    assert len(values[0]) == 4 * kRows and largest < 0.05
    for metric in ("acc,none", "acc_norm,none"):
        assert abs(ours[metric] - theirs[metric]) <= 0.002, metric
