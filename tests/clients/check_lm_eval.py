"""lm-evaluation-harness."""

import json

from programs import run


def test_lm_eval_scores_choices(server, base_url, tmp_path):
    """Log-likelihoods by echo, with token ids made by the server's own tokenizer."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    rows = [{"question": f"{i} is", "choices": [" even", " odd"], "answer": i % 2} for i in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tasks / "parity.yaml").write_text(f"""task: parity
dataset_path: json
dataset_kwargs:
  data_files:
    test: {tmp_path}/rows.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
""")
    run("lm_eval", "run", "--model", "local-completions", "--tasks", "parity", "--include_path", tasks,
        "--output_path", tmp_path / "out", "--model_args",
        f"model=tiny,base_url={base_url}/completions,tokenizer_backend=remote,tokenized_requests=True,max_length=512",
        cwd=tmp_path)
    results = json.loads(next((tmp_path / "out").rglob("results*.json")).read_text())
    assert 0 <= results["results"]["parity"]["acc,none"] <= 1
