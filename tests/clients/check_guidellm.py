"""guidellm."""

import json

from programs import run


def test_guidellm_measures(server, folder, tmp_path):
    for path in ("completions", "chat/completions"):
        report = tmp_path / f"{path[:4]}.json"
        run("guidellm", "run", "--backend", f"kind=openai_http,target={server.url},model=tiny,request_format=/v1/{path}",
            "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=4",
            "--tokenizer", f"kind=huggingface_auto,model={folder}",
            "--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=8", "--output", f"kind=json,path={report}",
            "--disable-console", cwd=tmp_path)
        requests = json.loads(report.read_text())["benchmarks"][0]["requests"]
        assert len(requests["successful"]) == 4 and not requests["errored"]
