"""lm-evaluation-harness: log-likelihoods of choices, and answers of both of its clients."""

import json
import os

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import httpx  # noqa: E402
import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
import pytest  # noqa: E402




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


def beside_transformers(evaluate, server, folder, rows, **task):
    """Results and log-likelihoods of a task from the server, and from transformers with the same weights."""
    sides = []
    for name, model, arguments in [
            ("ours", "local-completions", completions(server.url, "tiny", tokenizer_backend="huggingface", tokenizer=folder)),
            ("theirs", "hf", f"pretrained={folder},dtype=float32,max_length=512")]:
        results, samples = evaluate(name, model, arguments, rows, **task)
        sides.append((results, [sample["filtered_resps"] for sample in samples]))
    return sides


def flat(values):
    """All numbers of nested lists; whether a choice is the greedy one is left out."""
    if isinstance(values, list | tuple):
        return [number for value in values for number in flat(value)]
    return [] if isinstance(values, bool | str) else [float(values)]


def test_lm_eval_scores_a_cloze_as_transformers_does(server, folder, evaluate):
    rows = [{"question": f"The sum of {i} and {i % 7} is", "choices": [f" {i + i % 7}", f" {i + 3}", " nothing"],
             "answer": i % 3} for i in range(20)]
    (ours, our_scores), (theirs, their_scores) = beside_transformers(evaluate, server, folder, rows, **accuracy("acc", "acc_norm"))
    assert flat(our_scores) == pytest.approx(flat(their_scores), rel=5e-3, abs=5e-2)
    for name in ("acc,none", "acc_norm,none"):
        error = (theirs[name] * (1 - theirs[name]) / len(rows)) ** 0.5
        assert abs(ours[name] - theirs[name]) <= error, name


def test_lm_eval_measures_perplexity_as_transformers_does(server, folder, evaluate):
    rows = [{"question": "", "text": " ".join(f"{i * j % 97} of {j} words" for j in range(1, 12))} for i in range(8)]
    metrics = ("word_perplexity", "byte_perplexity", "bits_per_byte")
    (ours, our_scores), (theirs, their_scores) = beside_transformers(
        evaluate, server, folder, rows, output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
        metric_list=[{"metric": name} for name in metrics])
    assert flat(our_scores) == pytest.approx(flat(their_scores), rel=2e-3)
    for name in metrics:
        assert ours[f"{name},none"] == pytest.approx(theirs[f"{name},none"], rel=2e-2), name


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
