"""`headrace profile`: its table, its JSON, its trace, and what it refuses."""

import json

import pytest

kMachine = [
    {"kind": "machine", "processor": "P", "isa": "avx2+fma+f16c", "memory_bytes": 2e9},
    {"kind": "peak", "name": "p", "arithmetic": "f32", "isa": "avx2+fma", "threads": 2, "one_thread_op_s": 1e11,
     "all_threads_op_s": 2e11},
    {"kind": "read", "working_set_bytes": 1048576, "threads": 2, "one_thread_byte_s": 1e11, "all_threads_byte_s": 2e11},
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    file = tmp_path_factory.mktemp("machine") / "machine.json"
    file.write_text("\n".join(map(json.dumps, kMachine)))
    return file


@pytest.fixture(scope="module")
def profile(headrace, model, machine):
    def call(*options):
        return headrace("profile", model, "--machine", machine, "--context", 256, *options)
    return call


def test_the_table_says_where_the_time_of_prompts_and_answers_goes(profile):
    shown = profile("--prefill", 32, "--decode", 8, "--batch", 2)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "steps with prompts:" in shown.stdout and "steps with answers:" in shown.stdout
    for name in ("qkv_linear", "attention", "gated_linear", "head", "between ops", "plan", "sample", "commit"):
        assert f"\n  {name} " in shown.stdout, name


def test_ops_and_what_lies_between_them_make_the_step(profile):
    shown = profile("--prefill", 24, "--decode", 6, "--json")
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["format"] == "headrace-profile" and report["threads"] > 0
    assert [phase["name"] for phase in report["phases"]] == ["prompt", "answer"]
    assert [phase["tokens"] for phase in report["phases"]] == [24, 5]
    for phase in report["phases"]:
        ops = sum(row["us"] for row in phase["ops"])
        assert ops + phase["between_ops_us"] == pytest.approx(phase["parts"]["forward"], rel=1e-9)
        assert sum(phase["parts"].values()) == pytest.approx(phase["us"], rel=1e-9)
        assert all(row["share_of_limit"] > 0 for row in phase["ops"] if row["bytes"] > 0)
    layers = {op[1] for step in report["steps"] for op in step["ops"]}
    assert layers == {-1, *range(max(layers) + 1)}
    for step in report["steps"]:
        assert sum(us for _, _, us in step["parts"]) == pytest.approx(step["us"], abs=1)


def test_the_trace_is_json_whose_events_nest(profile, tmp_path):
    file = tmp_path / "trace.json"
    assert profile("--prefill", 8, "--decode", 3, "--trace", file).returncode == 0
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["cat"] for event in events} == {"step", "part", "layer", "op"}
    for row in {event["tid"] for event in events}:
        open_ends = []
        for event in (event for event in events if event["tid"] == row):
            while open_ends and open_ends[-1] <= event["ts"] + 1e-3:
                open_ends.pop()
            end = event["ts"] + event["dur"]
            assert not open_ends or end <= open_ends[-1] + 1e-3, event
            open_ends.append(end)


@pytest.mark.parametrize("options, said", [
    (["--prefill", 0], "--prefill"), (["--decode", 1001], "--decode"), (["--batch", "many"], "--batch"),
    (["--prefill", 250], "--prefill and --decode are 282 tokens together, but a sequence has 256 here"),
    (["--trace", "/none/there/trace.json"], "cannot write the trace to '/none/there/trace.json'"),
])
def test_bad_input_is_refused(profile, options, said):
    shown = profile(*options)
    assert shown.returncode in (1, 2) and shown.stdout == ""
    assert said in shown.stderr


def test_a_machine_file_that_is_none_is_refused(headrace, model, tmp_path):
    file = tmp_path / "machine.json"
    file.write_text("{}")
    shown = headrace("profile", model, "--machine", file)
    assert shown.returncode == 1 and "machine.json" in shown.stderr
