"""The laboratory: forms in, a real runner, kills, export, and an agent through the published client."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment, kBinary


def prints(**metrics):
    return [sys.executable, "-c", f"import json; print(json.dumps({metrics!r}))"]


@pytest.fixture
def lab(headrace, tmp_path):
    """lab(words..., form=None): runs `headrace lab` in a laboratory of the test's own."""
    def call(*words, form=None, **how):
        return headrace("lab", *words, "--lab", tmp_path / "lab", "--by", "tester",
                        input="" if form is None else json.dumps(form), env={"TMPDIR": str(tmp_path)}, **how)
    return call


def add_question(lab, first=10, second=15, **experiment):
    lab("add", "hypothesis", form={"statement": "two is faster", "metric": "speed", "predicted": 0.2})
    return lab("add", "experiment", form={"hypothesis": 1, "title": "one or two", "sides": [
        {"name": "one", "command": prints(speed=first)}, {"name": "two", "command": prints(speed=second)}]} | experiment)


def test_a_hypothesis_is_stated_tried_and_decided(lab):
    assert add_question(lab).stdout == "experiment 1\n"
    assert "0.71 bits about hypothesis 1" in lab("queue").stdout
    ran = lab("run", "--idle-patience", 0, "--idle-share", 1)
    assert ran.returncode == 0 and ran.stdout == "1 experiments ended\n"
    assert "50.0 % better" in ran.stderr
    overview = json.loads(lab("overview", "--json").stdout)
    assert overview["hypotheses"][0]["state"] == "validated"
    assert overview["experiments"][0]["state"] == "done"
    shown = json.loads(lab("show", 1, "--json").stdout)
    assert len(shown["runs"]) == 6 and all(run["state"] == "done" for run in shown["runs"])
    machine = shown["runs"][0]["machine"]["machine"]
    assert machine["processor"] and machine["commit"] and machine["cores"] >= 1 and machine["read_limit_byte_s"] is None
    lab("add", "learning", form={"text": "two it is", "links": ["experiment:1"]})
    page = lab("export").stdout
    assert "**1. two is faster** (validated)" in page and "two it is (experiment:1)" in page
    assert all(entry["author"] == "tester" for entry in json.loads(lab("log", "--json").stdout)["log"])


@pytest.mark.parametrize("words, form, problem", [
    (("fly",), None, "'lab' cannot 'fly'; it knows add, overview, queue"),
    (("show",), None, "usage: headrace lab show EXPERIMENT"),
    (("show", "x"), None, "the experiment is 'x', and must be a whole number"),
    (("show", "4"), None, "there is no experiment 4"),
    (("add", "thing"), {}, "there is no 'thing'; what can be added is a hypothesis, an experiment or a learning"),
    (("add", "hypothesis"), {"statement": "x"}, "a hypothesis needs the field 'metric'"),
    (("add", "hypothesis"), [1], "the form must be an object"),
    (("add", "experiment", "/no/such/file"), None, "/no/such/file"),
    (("conclude", "1", "true", "because"), None, "state: is 'true', and must be open, validated or ruled out"),
])
def test_what_is_wrong_is_named(lab, words, form, problem):
    done = lab(*words, form=form)
    assert done.returncode != 0 and problem in done.stderr


@pytest.mark.parametrize("command, problem", [
    ([sys.executable, "-c", "import time; time.sleep(1000)"], "it ran longer than 1 s, its limit"),
    ([sys.executable, "-c", "while True: print('x' * 1000)"], "it printed more than 9.8 KiB, its limit"),
    (["head", "-c", "1000000000", "/dev/zero"], "it printed more than 9.8 KiB, its limit"),
    (["sh", "-c", "head -c 1000000000 /dev/zero >&2"], "it printed more than 9.8 KiB to standard error, its limit"),
    ([sys.executable, "-c", "print('no JSON')"], "what the run printed is not valid JSON"),
    ([sys.executable, "-c", "print('{\"sped\": 1}')"], "the run printed no metric 'speed'; there is 'sped'"),
    (["no-such-program-here"], "cannot start 'no-such-program-here'"),
])
def test_a_command_that_misbehaves_fails_its_experiment(lab, command, problem):
    add_question(lab, sides=[{"name": "one", "command": command}, {"name": "two", "command": prints(speed=1)}],
                 limits={"seconds": 1, "output_bytes": 10000})
    assert lab("run", "--idle-patience", 0, "--idle-share", 1).returncode == 0
    shown = json.loads(lab("show", 1, "--json").stdout)
    assert shown["state"] == "failed" and problem in shown["state_reason"]


def test_a_runner_that_is_killed_loses_nothing_that_was_done(lab, tmp_path):
    add_question(lab)
    program = [kBinary, "lab", "run", "--lab", str(tmp_path / "lab"), "--idle-patience", "0", "--idle-share", "1"]
    num_done = 0
    for kill in range(5):
        runner = subprocess.Popen(program, env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.1 + 0.05 * kill)
        runner.kill()
        runner.wait()
        done = [run for run in json.loads(lab("show", 1, "--json").stdout)["runs"] if run["state"] == "done"]
        assert len(done) >= num_done
        num_done = len(done)
    assert lab("run", "--idle-patience", 0, "--idle-share", 1).returncode == 0
    assert json.loads(lab("overview", "--json").stdout)["hypotheses"][0]["state"] == "validated"


kFullDisk = """
set -eu
mount -t tmpfs -o size=1m disk "$DISK"
lab() { "$PROGRAM" lab "$@" --lab "$DISK/lab" --by tester; }
lab add hypothesis "$FORMS/hypothesis.json"
lab add experiment "$FORMS/experiment.json"
status=0
lab run --idle-patience 0 --idle-share 1 || status=$?
echo "ended with $status"
"$PYTHON" -c 'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("PRAGMA integrity_check").fetchone())' "$DISK/lab/lab.sqlite"
mount -o remount,size=64m "$DISK"
lab show 1 --json
lab run --idle-patience 0 --idle-share 1
lab overview --json
"""


def test_numbers_are_shown_as_people_write_them(lab):
    add_question(lab, cost_s=0.25)
    lab("run", "--idle-patience", 0, "--idle-share", 1)
    shown = lab("show", 1).stdout
    assert "two  validated  0.5  0.5  0.5  3" in shown, shown
    assert "E-1" not in shown and "E0" not in shown, shown


@pytest.fixture
def with_disk(tmp_path):
    """with_disk(script): runs it where it may mount a small file system on $DISK."""
    unshare = next((way for way in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"])
                    if subprocess.run([*way, "mount", "-t", "tmpfs", "disk", str(tmp_path)], check=False, capture_output=True).returncode == 0), None)
    if unshare is None:
        pytest.skip("no file system can be mounted here")
    (tmp_path / "disk").mkdir()
    variables = environment(DISK=str(tmp_path / "disk"), FORMS=str(tmp_path), PROGRAM=kBinary, PYTHON=sys.executable, TMPDIR=str(tmp_path))
    return lambda script: subprocess.run([*unshare, "bash", "-c", script], text=True, capture_output=True, timeout=120, check=False, env=variables)


def test_a_full_disk_ends_the_run_with_an_error_and_a_whole_database(with_disk, tmp_path):
    (tmp_path / "hypothesis.json").write_text(json.dumps({"statement": "two is faster", "metric": "speed"}))
    large = [{"name": name, "command": [sys.executable, "-c", f"import json; print(json.dumps({{'speed': {speed}, 'pad': 'x' * 200000}}))"]}
             for name, speed in (("one", 10), ("two", 12))]
    (tmp_path / "experiment.json").write_text(json.dumps({"hypothesis": 1, "title": "fill it", "sides": large}))
    done = with_disk(kFullDisk)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "ended with 1" in lines and "ok" in lines, done.stdout
    assert "free some space; what was done is kept" in done.stderr
    before = json.loads(lines[lines.index("ok") + 1])
    runs_done = [run for run in before["runs"] if run["state"] == "done"]
    assert runs_done and all(run["metrics"]["speed"] in (10, 12) for run in runs_done)
    after = json.loads(lines[-1])
    assert after["experiments"][0]["state"] == "done" and after["hypotheses"][0]["state"] == "validated"


kFullBefore = """
mount -t tmpfs -o size=1m disk "$DISK"
"$PROGRAM" lab overview --lab "$DISK/lab" > "$FORMS/overview" || exit 3
cat /dev/zero > "$DISK/rest" 2> "$FORMS/errors"
"$PROGRAM" lab overview --lab "$DISK/lab"
"""


def test_a_disk_that_was_full_before_is_called_so(with_disk):
    """It was a "disk I/O error", which sounds like a broken disk."""
    done = with_disk(kFullBefore)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "database or disk is full (free some space; what was done is kept)" in done.stderr


def test_two_runners_do_not_run_at_once(lab, tmp_path):
    add_question(lab, sides=[{"name": name, "command": ["sh", "-c", "sleep 1; echo '{\"speed\":1}'"]} for name in "ab"])
    runner = subprocess.Popen([kBinary, "lab", "run", "--lab", str(tmp_path / "lab"), "--idle-patience", "0", "--idle-share", "1"],
                              env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "experiment 1" in runner.stderr.readline()
    for folder in ("lab", "other"):  # the same laboratory, and another one on the same machine
        second = subprocess.run([kBinary, "lab", "run", "--lab", str(tmp_path / folder)], env=environment(TMPDIR=str(tmp_path)),
                                text=True, capture_output=True, timeout=60, check=False)
        assert second.returncode == 1 and "another runner is at work: it holds " in second.stderr
    runner.kill()
    runner.wait()


def test_a_runner_stops_when_it_is_asked_to(lab, tmp_path):
    add_question(lab, sides=[{"name": name, "command": ["sh", "-c", "sleep 0.3; echo '{\"speed\":1}'"]} for name in "ab"])
    runner = subprocess.Popen([kBinary, "lab", "run", "--lab", str(tmp_path / "lab"), "--idle-patience", "0", "--idle-share", "1"],
                              env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "experiment 1" in runner.stderr.readline()
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(60) == 128 + signal.SIGTERM
    assert json.loads(lab("overview", "--json").stdout)["experiments"][0]["state"] == "queued"


def is_gone(pid):
    """A process whose parent went first may be on record until somebody waits for it."""
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_long_run_and_its_program(lab, tmp_path, number):
    """Ctrl-C waited for the end of the run, up to ten minutes; a terminal that closed left its program at work."""
    add_question(lab, sides=[{"name": name, "command": ["sh", "-c", "echo $$ > .pid; mv .pid begun; exec sleep 100"]} for name in "ab"])
    runner = subprocess.Popen([kBinary, "lab", "run", "--lab", str(tmp_path / "lab"), "--idle-patience", "0", "--idle-share", "1"],
                              env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (begun := list(tmp_path.glob("lab/artifacts/*/begun"))):
        assert runner.poll() is None
        time.sleep(0.05)
    runner.send_signal(number)
    assert runner.wait(50) == 128 + number
    assert is_gone(int(begun[0].read_text()))
    assert [run["state"] for run in json.loads(lab("show", 1, "--json").stdout)["runs"]] == ["interrupted"]


def test_an_agent_works_through_the_published_client(lab, tmp_path):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def work():
        server = StdioServerParameters(command=kBinary, args=["lab", "mcp", "--lab", str(tmp_path / "lab")], env=environment())
        async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
            await session.initialize()
            names = {tool.name for tool in (await session.list_tools()).tools}
            assert {"overview", "queue", "add_hypothesis", "add_experiment", "conclude"} <= names
            await session.call_tool("add_hypothesis", {"statement": "x is faster", "metric": "speed"})
            added = await session.call_tool("add_experiment", {"hypothesis": 1, "title": "try x", "sides": [
                {"name": "a", "command": prints(speed=1)}, {"name": "b", "command": prints(speed=2)}]})
            assert json.loads(added.content[0].text) == {"id": 1}
            wrong = await session.call_tool("conclude", {"id": 9, "state": "open", "verdict": "no"})
            assert "there is no hypothesis 9" in wrong.content[0].text
            return json.loads((await session.call_tool("overview", {})).content[0].text)

    overview = asyncio.run(work())
    assert overview["experiments"][0]["title"] == "try x"
    assert overview["hypotheses"][0]["author"].startswith("agent ")


def test_tuning_tries_options_and_writes_settings_that_load(lab, headrace, model, tmp_path):
    done = lab("tune", model, "--goal", "memory", "--rounds", 5, "--idle-patience", 0, "--idle-share", 1, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"# Recommended for memory of {model} by headrace lab tune.\n")
    assert "# kv-type = int8: " in done.stdout
    settings = tmp_path / "lab/tuned-memory.toml"
    assert settings.read_text() == done.stdout
    ran = headrace("run", model, "Hi", "--max-tokens", 2, env={"HEADRACE_CONFIG": str(settings)})
    assert ran.returncode == 0, ran.stderr
    overview = json.loads(lab("overview", "--json").stdout)
    first = overview["experiments"][0]
    assert first["title"] == "defaults beside 3 changes" and all(row["state"] == "done" for row in overview["experiments"])
    assert [side.get("hypothesis") for side in first["sides"]] == [None, 1, 2, 3] and len(overview["hypotheses"]) >= 3


def test_tuning_answers_to_recorded_requests_tries_guesses(lab, model, tmp_path):
    trace = tmp_path / "asked.jsonl"
    lines = [{"time": 9.0 * i, "prompt": "one two three one two three one two", "output_tokens": 12} for i in range(3)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = lab("tune", model, "--goal", "answers", "--trace", trace, "--draft-model", model, "--rounds", 5, "--idle-patience", 0, "--idle-share", 1,
               timeout=600)
    assert done.returncode == 0, done.stderr
    assert "# speculation = off: " in done.stdout and f"# draft-model = {model}: " in done.stdout
    overview = json.loads(lab("overview", "--json").stdout)
    assert all(row["state"] == "done" for row in overview["experiments"])
    command = overview["experiments"][0]["sides"][0]["command"]
    assert command[1:3] == ["bench", "serve"] and command[command.index("--trace") + 1] == str(trace)


def test_texts_are_only_for_the_goal_that_asks_for_them(lab, model):
    done = lab("tune", model, "--goal", "ttft", "--draft-model", model)
    assert done.returncode != 0
    assert "the goal ttft computes random tokens: --trace and --draft-model are for --goal answers" in done.stderr


def test_tuning_an_unknown_model_says_why_it_could_not_run(lab):
    done = lab("tune", "/no/such/model", "--goal", "memory", "--rounds", 5, "--idle-patience", 0, "--idle-share", 1, timeout=600)
    assert done.returncode == 1 and done.stdout == ""
    assert "no experiment of the tuning could be run: side" in done.stderr


@pytest.mark.parametrize("words, problem", [
    (("--host", "0.0.0.0"), "--host is 0.0.0.0, which others reach, and there are no API keys"),
    (("--engine", "localhost:1"), "'localhost:1' is no address of an engine: it must look like http://host:port"),
    (("now",), "usage: headrace lab serve"),
])
def test_what_cannot_be_served_is_named(lab, words, problem):
    done = lab("serve", *words)
    assert done.returncode != 0 and problem in done.stderr
