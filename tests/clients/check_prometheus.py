"""What Prometheus makes of /metrics: its parser for Python, its linter and the program itself."""

import json
import re
import shutil
import socket
import subprocess
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import http_support

# What dashboards and routers written for vLLM read.
kHistograms = ["e2e_request_latency_seconds", "time_to_first_token_seconds", "inter_token_latency_seconds",
               "iteration_tokens_total", "request_prompt_tokens", "request_generation_tokens",
               "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
               "request_max_num_generation_tokens"]
kCounters = ["prompt_tokens", "generation_tokens", "request_success", "prefix_cache_queries", "prefix_cache_hits"]
kGauges = ["kv_cache_usage_perc", "num_requests_running", "num_requests_waiting"]


@pytest.fixture(scope="module")
def families(server):
    """After some answers."""
    for stream in (False, True):
        body = {"model": "tiny", "prompt": "Hello", "max_tokens": 8, "stream": stream, "ignore_eos": True}
        assert httpx.post(server.url + "/v1/completions", json=body).status_code == 200
    server.wait_until_idle()
    text = httpx.get(server.url + "/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_families_have_the_names_and_types_that_dashboards_read(families):
    for names, kind in ((kHistograms, "histogram"), (kCounters, "counter"), (kGauges, "gauge")):
        for name in names:
            family = families[f"vllm:{name}"]
            assert family.type == kind and family.documentation, name
            assert {sample.labels["model_name"] for sample in family.samples} >= {"tiny", "script"}, name


def test_histograms_add_up(families):
    for family in families.values():
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
            series.setdefault(labels, []).append(sample)
        for samples in series.values():
            counts = [sample.value for sample in samples if sample.name.endswith("_bucket")]
            assert counts == sorted(counts) and samples[len(counts) - 1].labels["le"] == "+Inf"
            (count,) = (sample.value for sample in samples if sample.name.endswith("_count"))
            assert counts[-1] == count


def test_samples_are_unique(families):
    seen = set()
    for family in families.values():
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, key
            seen.add(key)


def expressions(node):
    """Every "expr" below a node of a dashboard."""
    members = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return ([node["expr"]] if isinstance(node, dict) and "expr" in node else []) + [
        each for member in members for each in expressions(member)]


def test_the_dashboard_asks_for_what_is_there(families):
    dashboard = json.loads((http_support.kRepository / "deploy/grafana.json").read_text())
    asked = set(re.findall(r"(?:vllm|headrace)[:_][a-z0-9_]+", " ".join(expressions(dashboard))))
    known = {sample.name for family in families.values() for sample in family.samples}
    assert asked and asked <= known, asked - known


def test_promtool_has_no_complaint(server):
    if shutil.which("promtool") is None:
        pytest.skip("needs Debian's package prometheus")
    text = httpx.get(server.url + "/metrics").text
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    # Names are those of others: what the linter thinks of colons and suffixes is no error of the format.
    assert "error while linting" not in result.stderr and "parsing" not in result.stderr, result.stderr


@pytest.fixture
def prometheus(server, tmp_path):
    """The address of a Prometheus that scrapes the server."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs Debian's package prometheus")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    target = server.url.removeprefix("http://")
    jobs = [{"job_name": "headrace", "static_configs": [{"targets": [target]}]}]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    process = subprocess.Popen(["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--web.listen-address={address}",
                                f"--storage.tsdb.path={tmp_path}/data"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    yield f"http://{address}"
    process.terminate()
    process.wait(timeout=60)


def test_a_real_prometheus_scrapes(prometheus, families):
    def query(expression):
        try:
            return httpx.get(prometheus + "/api/v1/query", params={"query": expression}).json()["data"]["result"]
        except (httpx.HTTPError, KeyError):
            return []

    end = time.monotonic() + 60
    while not (rows := query("vllm:generation_tokens_total")):
        assert time.monotonic() < end, "nothing was scraped"
        time.sleep(0.3)
    assert {row["metric"]["model_name"] for row in rows} == {"tiny", "script"}
    assert [row["value"][1] for row in query("up")] == ["1"]
    assert query("histogram_quantile(0.9, vllm:e2e_request_latency_seconds_bucket)")
