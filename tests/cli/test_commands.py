"""Commands around models: list, rm, show, doctor, completion, manual, and the file of settings."""

import json
import os
import shutil
import socket
import subprocess

import pytest


@pytest.fixture
def store(tmp_path, model):
    shutil.copytree(model, tmp_path / "store/hf/org--tiny@main")
    return tmp_path / "store"


def test_pulled_models_are_listed_shown_used_and_removed(headrace, store):
    rows = [json.loads(line) for line in headrace("list", "--json", "--store", store).stdout.splitlines()]
    assert [row["name"] for row in rows] == ["hf:org/tiny"]
    assert rows[0]["bytes"] == sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    table = headrace("list", "--store", store).stdout
    assert "hf:org/tiny" in table and str(store) in table
    shown = headrace("show", "hf:org/tiny", "--json", "--store", store)
    assert json.loads(shown.stdout)["file"]["path"] == rows[0]["path"]
    assert headrace("run", "hf:org/tiny", "Hi", "--max-tokens", 2, "--store", store).returncode == 0
    removed = headrace("rm", "hf:org/tiny", "hf:org/none", "--store", store)
    assert removed.returncode == 1 and "removed hf:org/tiny" in removed.stderr
    assert "'hf:org/none' is not in the model folder" in removed.stderr
    assert headrace("list", "--json", "--store", store).stdout == ""
    assert headrace("rm", "/etc/hostname", "--store", store).returncode != 0 and os.path.exists("/etc/hostname")


def test_doctor_says_what_limits_and_what_is_missing(headrace, store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = headrace("doctor", "--json", "--store", store, "--port", port)
    rows = {row["subject"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stderr
    assert {"processor", "kernels", "cores", "memory", "large pages", "open files", "model folder", "port"} == set(rows)
    assert rows["kernels"]["verdict"] == "good" and "1 model," in rows["model folder"]["found"]
    assert rows["port"]["verdict"] == "limits" and f"{port} is in use" == rows["port"]["found"]
    broken = headrace("doctor", "--store", "/etc/hostname/none")
    assert broken.returncode == 1 and "missing  model folder" in broken.stdout


def test_completions_offer_commands_options_choices_and_models(headrace, store):
    script = headrace("completion", "bash").stdout

    def complete(*words):
        line = " ".join(f'"{word}"' for word in words)
        done = subprocess.run(["bash", "-c", script + f"COMP_WORDS=({line})\nCOMP_CWORD={len(words) - 1}\n_headrace\n"
                               'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("headrace", "ser") == ["serve"]
    assert complete("headrace", "serve", "--max-wai") == ["--max-waiting"]
    assert complete("headrace", "run", "--isa", "avx5") == ["avx512", "avx512_vnni", "avx512_bf16"]
    assert "--port" not in complete("headrace", "run", "--")
    for shell in ("zsh", "fish"):
        assert "headrace" in headrace("completion", shell).stdout
    wrong = headrace("completion", "tcsh")
    assert wrong.returncode == 2 and "only for bash, zsh and fish" in wrong.stderr


def test_the_man_page_has_every_command_and_option(headrace):
    page = headrace("manual").stdout
    assert page.startswith(".TH HEADRACE 1\n")
    for words in (".SS headrace serve", ".SS headrace rm NAME", ".B \\-\\-max\\-waiting", "HEADRACE_PORT"):
        assert words in page, words
    assert not any(line.startswith("'") for line in page.splitlines())


def test_settings_come_from_a_file(headrace, model, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(f'model = "{model}"\ntemperature = 0\n[run]\nmax-tokens = 3\nstats = true\n')
    from_file = headrace("run", "Hi", env={"HEADRACE_CONFIG": str(config)})
    assert from_file.returncode == 0 and " 3 tokens" in from_file.stderr, from_file.stderr
    typed = headrace("run", "Hi", "--max-tokens", 5, env={"HEADRACE_CONFIG": str(config)})
    assert " 5 tokens" in typed.stderr
    default = tmp_path / "headrace/config.toml"
    default.parent.mkdir()
    default.write_text("max-tokens = 0\n")
    wrong = headrace("run", "Hi", env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert wrong.returncode == 2 and "config.toml, line 1: --max-tokens is '0'" in wrong.stderr
    assert headrace("version", env={"XDG_CONFIG_HOME": str(tmp_path)}).returncode == 0
    missing = headrace("version", env={"HEADRACE_CONFIG": str(tmp_path / "none.toml")})
    assert missing.returncode == 1 and "there is no file" in missing.stderr


def test_a_server_tells_what_is_wrong_before_it_loads_a_model(headrace, tmp_path):
    """Of a model that is not there: whatever is told is told before that."""
    model = tmp_path / "none.gguf"
    adapter = headrace("serve", model, "--adapter", f"one={tmp_path}/two")
    assert adapter.returncode != 0 and f"{tmp_path}/two" in adapter.stderr and "none.gguf" not in adapter.stderr
    formless = headrace("serve", model, "--adapter", "one")
    assert formless.returncode != 0 and "must be NAME=FOLDER" in formless.stderr
    origin = headrace("serve", model, "--cors-origins", "https://chat.example/")
    assert origin.returncode != 0 and "--cors-origins holds 'https://chat.example/'" in origin.stderr


def test_version_lists_what_is_asked_for(headrace):
    report = json.loads(headrace("version", "--json", "--options", "--list-kernels").stdout)
    assert set(report) == {"build", "machine", "libraries", "options", "kernels"}
    assert {"name": "--port", "default": "8080", "range": "0..65535", "environment": "HEADRACE_PORT"}.items() <= next(
        row for row in report["options"] if row["name"] == "--port").items()
    assert {row["state"] for row in report["kernels"]} >= {"in use"}
    assert "kernels" not in json.loads(headrace("version", "--json", "--options").stdout)
    assert "options" not in json.loads(headrace("version", "--json", "--list-kernels").stdout)
    options, kernels = (headrace("version", name).stdout for name in ("--options", "--list-kernels"))
    assert headrace("version", "--list-kernels", "--options").stdout == f"{options}\n{kernels}"


def test_a_record_of_another_model_is_refused(headrace, model, tmp_path):
    record = tmp_path / "record.json"
    for ids, reason in (([1, 2], None), ([100000], "has id 100000"), ([-1], "has id -1"), ([], "has no ids")):
        record.write_text(json.dumps({"prompts": [{"text": "a", "ids": ids, "greedy": []}]}))
        done = headrace("verify", "model", model, record)
        assert done.returncode == (0 if reason is None else 1), done.stderr
        if reason is not None:
            assert done.stderr.startswith(f"headrace: '{record}'") and reason in done.stderr, done.stderr


def test_version_names_the_arithmetic_of_activations(headrace):
    def classes_of(*options):
        machine = json.loads(headrace("version", "--json", *options).stdout)["machine"]
        return machine["coded_weights"], machine["bf16_weights"], machine["numerics_id"]

    exact, fast = classes_of("--isa", "avx2"), classes_of("--isa", "avx2", "--activations", "fast")
    assert exact[:2] == fast[:2] == ("integer", "f32-fma") and exact[2] != fast[2]  # 16 bits, and 8
    assert classes_of("--isa", "avx2", "--activations", "int8") == fast, "the earlier name"
    assert classes_of("--isa", "reference")[1] == "f32-reference"


def test_keys_and_values_are_f16_where_nothing_multiplies_them_in_tiles(headrace):
    def type_of(*options):
        machine = json.loads(headrace("version", "--json", "--isa", "avx2", *options).stdout)["machine"]
        return machine["kv_type"], machine["numerics_id"]

    assert type_of() == type_of("--kv-type", "auto") == type_of("--kv-type", "f16")
    assert type_of()[0] == "f16"
    assert type_of("--kv-type", "int16")[0] == "int16" and type_of("--kv-type", "int16")[1] != type_of()[1]
