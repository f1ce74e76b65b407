"""`headrace eval compare`: a run beside a reference run of the same text."""

import importlib.util
import json

import pytest
import tiny_model
from conftest import kRepository


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"{i} and {i * 7 % 13} are some words. " for i in range(60)))
    return file


@pytest.fixture(scope="module")
def compare(headrace, model, text):
    def call(*options):
        return headrace("eval", "compare", model, text, "--window", 64, "--windows", 3, *options)
    return call


def test_a_model_compared_with_itself_in_the_same_arithmetic_is_the_same(compare):
    shown = compare("--kv-type", "f16", "--reference-kv-type", "f16", "--json")
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["perplexity"] == report["reference_perplexity"]
    assert report["difference"] == 0 and report["same_best"] == pytest.approx(1)
    assert report["divergence"] == pytest.approx(0, abs=1e-12)
    assert report["tokens_scored"] == 3 * 63 and len(report["windows"]) == 3


def test_other_arithmetic_differs_a_little_and_the_reference_is_as_perplexity_says(compare, headrace, model, text):
    report = json.loads(compare("--kv-type", "int8", "--activations", "fast", "--json").stdout)
    assert 0 < report["divergence"] < 0.5 and 0 < report["difference"] < 1
    assert all(each["divergence"] > 0 for each in report["windows"])
    alone = headrace("eval", "perplexity", model, text, "--window", 64, "--windows", 3, "--kv-type", "f32", "--json")
    assert report["reference_perplexity"] == pytest.approx(json.loads(alone.stdout)["perplexity"], rel=1e-9)


def test_the_report_for_people(compare):
    shown = compare("--kv-type", "fp8")
    assert shown.returncode == 0 and "Kullback-Leibler divergence 0.0" in shown.stdout
    assert "over 189 tokens in 3 windows" in shown.stdout


def test_what_cannot_be_compared_is_refused(headrace, model, text, tmp_path):
    other = tiny_model.write(tmp_path / "other", script=tiny_model.Script({">": ["Other", " words."]}))
    shown = headrace("eval", "compare", model, text, "--reference", other, "--window", 64)
    assert shown.returncode != 0 and "only models with the same tokenizer can be compared" in shown.stderr
    shown = headrace("eval", "compare", model, text, "--window", 100000)
    assert shown.returncode != 0 and "but one window needs 100000" in shown.stderr
    shown = headrace("eval", "differ", model, text)
    assert shown.returncode != 0 and "there are: perplexity, compare" in shown.stderr
    shown = headrace("eval", "compare", model)
    assert shown.returncode != 0 and "headrace eval compare [MODEL] TEXT" in shown.stderr


@pytest.fixture(scope="module")
def quality():
    spec = importlib.util.spec_from_file_location("quality", kRepository / "bench/quality.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_qualities_changes_one_setting_at_a_time(quality):
    tried = quality.variants(["exact", "fast"], ["f16", "int8", "fp8"])
    assert tried == [("exact", "f16"), ("fast", "f16"), ("exact", "int8"), ("exact", "fp8")]
    assert quality.variants(["exact"], ["f16"]) == [("exact", "f16")]


def test_intervals_hold_the_mean_and_narrow_with_more_windows(quality):
    mean, low, high = quality.interval([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5 and 1 <= low < mean < high <= 4
    _, lower, higher = quality.interval([1.0, 2.0, 3.0, 4.0] * 25)
    assert higher - lower < (high - low) / 3
    assert quality.interval([0.25] * 9) == (0.25, 0.25, 0.25)


def test_the_table_of_qualities_has_a_row_for_each_setting(quality):
    row = {"model": "/models/a.gguf", "activations": "fast", "kv_type": "f16", "perplexity": 12.3456,
           "prefill_tok_s": (100.0, 90.0, 110.0), "decode_tok_s": (20.0, 19.0, 21.0), "weight_bytes": 94200000, "kv_bytes": 2500000,
           "same_best": (0.975, 0.97, 0.98),
           **{name: (0.001, 0.0005, 0.002) for name in ("added_nll", "difference", "divergence")}}
    head, rule, line = quality.table([row]).splitlines()
    assert head.count("|") == rule.count("|") == line.count("|")
    assert "| a.gguf | fast | f16 | 12.346 | 0.00100 (0.00050 to 0.00200) |" in line and \
        "| 97.5 % | 100 (90 to 110) | 20.0 (19.0 to 21.0) | 94.2 | 2.50 |" in line
