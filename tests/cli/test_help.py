"""What the program says about itself, and to words that it does not know."""

import os
import re

import pytest

kCommands = ["run", "chat", "serve", "key", "pull", "list", "rm", "show", "ps", "stop", "doctor", "inspect",
             "tokenize", "render", "eval", "verify", "bench", "plan", "profile", "lab", "completion", "manual", "version"]


@pytest.fixture(scope="module")
def options(headrace):
    """command -> names of its options, as the program's own table says."""
    table = {command: set() for command in kCommands}
    for line in headrace("version", "--options").stdout.splitlines():
        for command in line.rsplit("; for ", 1)[1].split():
            table[command].add(line.split()[0])
    return table


@pytest.mark.parametrize("command", kCommands)
def test_manual_shows_every_option_within_the_width(headrace, options, command):
    for columns in (None, "100", "50"):
        shown = headrace(command, "--help", columns=columns)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert f"Usage: headrace {command}" in shown.stdout
        assert set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown.stdout, re.M)) == options[command]
        width = int(columns or 80)
        long = [line for line in shown.stdout.splitlines() if len(line) > width and columns != "50"]
        assert not long, long
        for word in ("OPTIONS]:", "TEXT:", "REQUIRED", "Positionals", "FLOAT", "Excludes"):
            assert word not in shown.stdout, word


def test_help_follows_the_terminal(terminal):
    for columns in (60, 90):
        window = terminal("run", "--help", columns=columns)
        assert window.close() == 0
        widths = [len(line) for line in window.written.replace("\r", "").splitlines() if "headrace run" not in line]
        assert columns - 16 < max(widths) <= columns


def test_sampling_comes_first_and_kernels_last(headrace):
    headings = re.findall(r"^(\w[\w ]*):$", headrace("run", "--help").stdout, re.M)
    assert headings == ["Examples", "Answer", "Server", "Model", "Output", "Memory", "Kernels"]
    assert "the model's own, else 0.7" in " ".join(headrace("run", "--help").stdout.split())


def test_all_ways_to_ask_for_help_agree(headrace):
    short = headrace()
    assert short.returncode == 0 and all(f"\n  {name} " in short.stdout for name in kCommands)
    for words in (["--help"], ["-h"], ["help"], ["help", "help"]):
        assert headrace(*words).stdout == short.stdout
    manual = headrace("run", "--help").stdout
    for words in (["run", "-h"], ["help", "run"], ["run", "--seed", "1", "some", "text", "--help"]):
        assert headrace(*words).stdout == manual
    assert headrace("--version").stdout == headrace("version").stdout


@pytest.mark.parametrize("words, message", [
    (["rnu"], "there is no command 'rnu'; did you mean run?"),
    (["xyzzy"], "there is no command 'xyzzy' (headrace --help lists the commands)"),
    (["help", "rum"], "there is no command 'rum'; did you mean run?"),
    (["--model", "x", "run"], "the command comes first, and '--model' is none"),
    (["run", "--temprature", "1", "x"], "'run' has no option '--temprature'; did you mean --temperature?"),
    (["run", "-x", "hello"], "'run' has no option '-x' ("),
    (["serve", "--prot=1"], "'serve' has no option '--prot'; did you mean --port?"),
    (["run", "hello", "--seed"], "--seed needs a value in 0..9223372036854775807"),
    (["run", "--stats=yes", "hello"], "--stats takes no value, but got 'yes'"),
    (["run", "--top-p", "7", "hello"], "--top-p is '7', but it must be a number in 0..1"),
    (["pull"], "'pull' needs NAME (usage: headrace pull NAME)"),
    (["chat", "a", "b"], "'chat' has no use for 'b' (usage: headrace chat [MODEL])"),
    (["version", "now"], "'version' has no use for 'now' (usage: headrace version)"),
])
def test_wrong_usage_is_explained_and_exits_with_2(headrace, words, message):
    refused = headrace(*words)
    assert refused.stderr.startswith("headrace: " + message), refused.stderr
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


@pytest.mark.skipif("HEADRACE_TEST_MODELS" not in os.environ, reason="needs HEADRACE_TEST_MODELS")
def test_the_example_of_decoded_ids_is_of_the_default_model(headrace):
    example = re.search(r"headrace (tokenize --decode [\d ]+)$", headrace("tokenize", "--help").stdout, re.M).group(1)
    model = os.path.join(os.environ["HEADRACE_TEST_MODELS"], "smollm2-135m.gguf")
    assert headrace(*example.split(), env={"HEADRACE_MODEL": model}).stdout == "Hello, world!\n"
