"""What is shipped to run the server: its unit, its container, its dashboard; and the names of metrics that others ship."""

import json
import re
import shutil
import subprocess

import httpx
import pytest

from conftest import kBinary, kRepository

kDeploy = kRepository / "deploy"

# What the dashboards that vLLM ships query, and what load generators and gateways read.
kNeeded = """
vllm:e2e_request_latency_seconds_bucket vllm:e2e_request_latency_seconds_count vllm:e2e_request_latency_seconds_sum
vllm:time_to_first_token_seconds_bucket vllm:time_to_first_token_seconds_sum vllm:time_to_first_token_seconds_count
vllm:inter_token_latency_seconds_bucket vllm:inter_token_latency_seconds_sum vllm:inter_token_latency_seconds_count
vllm:prompt_tokens_total vllm:generation_tokens_total vllm:iteration_tokens_total_count vllm:request_success_total
vllm:request_prompt_tokens_bucket vllm:request_generation_tokens_bucket vllm:request_queue_time_seconds_sum
vllm:request_prefill_time_seconds_sum vllm:request_decode_time_seconds_sum vllm:request_max_num_generation_tokens_sum
vllm:kv_cache_usage_perc vllm:num_requests_running vllm:num_requests_waiting vllm:num_requests_waiting_by_reason
vllm:num_preemptions_total vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total
vllm:prompt_tokens_by_source_total vllm:prompt_tokens_cached_total vllm:cache_config_info
""".split()
kEdges = {
    "vllm:time_to_first_token_seconds":
        "0.001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560",
    "vllm:inter_token_latency_seconds": ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80",
    "vllm:e2e_request_latency_seconds":
        ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680",
}


@pytest.fixture(scope="module")
def metrics(server):
    answer = httpx.post(server.url + "/v1/completions", json={"prompt": "ab", "max_tokens": 3})
    assert answer.status_code == 200
    return httpx.get(server.url + "/metrics").text


def series_of(text):
    return {re.match(r"[\w:]+", line).group() for line in text.splitlines() if line and not line.startswith("#")}


def test_the_metrics_that_other_dashboards_query_are_there(metrics):
    assert sorted(set(kNeeded) - series_of(metrics)) == []
    for line in metrics.splitlines():
        if line.startswith("vllm:"):
            assert re.search(r'model_name="[^"]+",engine="0"', line), line
    for reason in ["stop", "length", "abort", "error"]:
        assert f'finished_reason="{reason}"' in metrics


def test_buckets_have_the_edges_that_quantile_panels_expect(metrics):
    for name, edges in kEdges.items():
        found = re.findall(rf'^{name}_bucket\{{.*le="([^"]+)"\}} ', metrics, re.M)
        assert [float(edge) for edge in found[:-1]] == [float(edge) for edge in edges.split()], name
        assert found[-1] == "+Inf"


def test_the_dashboard_queries_only_what_exists(metrics):
    dashboard = json.loads((kDeploy / "grafana.json").read_text())
    panels = dashboard["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(panels) >= 16 and len({panel["id"] for panel in panels}) == len(panels)
    names = set()
    for expression in expressions:
        found = set(re.findall(r"(?:vllm:|headrace:|process_)\w+", expression))
        assert found and expression.count("(") == expression.count(")"), expression
        names |= found
    assert sorted(names - series_of(metrics)) == []
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval"} <= variables
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)


def test_the_unit_is_valid_and_has_a_tight_sandbox(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("this machine has no systemd-analyze")
    unit = tmp_path / "headrace.service"
    unit.write_text((kDeploy / "headrace.service").read_text().replace("/usr/bin/headrace", kBinary))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0 and "headrace.service" not in checked.stderr, checked.stderr
    rated = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
                           capture_output=True, text=True, timeout=120)
    exposure = re.search(r"Overall exposure level for headrace\.service: ([\d.]+)", rated.stdout)
    assert exposure and float(exposure.group(1)) <= 2.0, rated.stdout[-2000:]


def options_of_the_program():
    listed = subprocess.run([kBinary, "version", "--options"], capture_output=True, text=True, timeout=60).stdout
    return set(re.findall(r"\bHEADRACE_\w+", listed))


@pytest.mark.parametrize("name", ["headrace.service", "Containerfile"])
def test_deployment_files_set_only_variables_that_exist(name):
    used = set(re.findall(r"\bHEADRACE_\w+", (kDeploy / name).read_text()))
    assert used and used - options_of_the_program() - {"HEADRACE_HOME"} == set()


def test_the_container_has_every_library_of_the_program():
    text = (kDeploy / "Containerfile").read_text()
    last = text[text.rindex("\nFROM "):]
    assert re.search(r"^COPY --from=build \S+/bin/headrace /usr/bin/headrace$", last, re.M)
    assert re.search(r"^USER \d+$", last, re.M) and "ENTRYPOINT [" in last
    if not shutil.which("dpkg-query"):
        pytest.skip("this machine has no dpkg")
    needed = re.findall(r"NEEDED\s+(\S+)", subprocess.run(["objdump", "-p", kBinary], capture_output=True, text=True,
                                                          timeout=60).stdout)
    assert needed
    for library in needed:
        found = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True, timeout=60).stdout
        packages = {line.split(":")[0] for line in found.splitlines()}
        if packages:
            assert any(re.search(rf"\s{re.escape(package)}\s", last) for package in packages), (library, packages)
