"""One grammar for model and text, standard input as the prompt, and output that arrives or fails."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from conftest import Screen, kBinary


@pytest.fixture(scope="module")
def answer(headrace, model):
    """The greedy answer of the model to a prompt, through --model."""

    def ask(prompt):
        return headrace("run", "--model", model, "--temperature", 0, "--max-tokens", 8, prompt, stdin=subprocess.DEVNULL)

    return ask


def greedy(headrace, *words, **options):
    done = headrace("run", "--temperature", 0, "--max-tokens", 8, *words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def steady(output):
    """Without the memory that the machine has at the moment."""
    return re.sub(r'"(available_now|kv_reserved_by_serve)":\d+', r'"\1":0', output)


def test_every_command_takes_the_model_in_both_ways(headrace, model, tmp_path):
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": "Hi"}]))
    text = tmp_path / "text.txt"
    text.write_text("some words " * 20)
    for command in (["inspect", None, "--json"], ["tokenize", None, "two words"], ["render", None, messages],
                    ["eval", "perplexity", None, text, "--window", 64],
                    ["run", None, "Hi", "--temperature", 0, "--max-tokens", 4]):
        at = command.index(None)
        first = headrace(*command[:at], model, *command[at + 1:])
        assert first.returncode == 0, first.stderr
        others = [word for word in command if word is not None]
        for form in (["-m", model], ["--model", model], [f"--model={model}"]):
            other = headrace(*others, *form)
            assert (other.returncode, steady(other.stdout)) == (0, steady(first.stdout)), other.stderr


def test_words_behind_the_model_are_one_prompt(headrace, model, answer):
    expected = answer("tell me more").stdout
    assert greedy(headrace, model, "tell", "me", "more") == expected
    assert greedy(headrace, "-m", model, "tell", "me more") == expected
    assert greedy(headrace, model, "--", "tell", "me", "more") == expected


def test_words_after_a_typed_option_are_all_text(headrace, model, answer):
    assert greedy(headrace, "-m", model, "smollm2:135m") == answer("smollm2:135m").stdout
    assert greedy(headrace, "-m", model, "smollm2") == answer("smollm2").stdout


def test_piped_text_is_the_prompt_or_follows_it(headrace, model, answer):
    assert greedy(headrace, model, input="What is this?\n") == answer("What is this?").stdout
    assert greedy(headrace, model, "-", input="What is this?") == answer("What is this?").stdout
    assert greedy(headrace, model, "Explain:", input="a\nb\n") == answer("Explain:\n\na\nb").stdout
    assert greedy(headrace, model, "Explain:", stdin=subprocess.DEVNULL) == answer("Explain:").stdout


def test_silent_input_is_waited_for_and_named(model):
    process = subprocess.Popen([kBinary, "run", str(model), "Hi", "--max-tokens", "2"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline().startswith("waiting for text on standard input")
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("words, message", [
    (["smollm2"], "there is no model 'smollm2'; did you mean smollm2:135m?"),
    (["smolm2:135m", "hi"], "there is no model 'smolm2:135m'; did you mean smollm2:135m?"),
    (["gemma", "hi"], "there is no model 'gemma'; did you mean gemma3:270m?"),
    (["llama3.2:1b", "hi"], "there is no model 'llama3.2:1b' (models are smollm2:135m, "),
    (["qwen3"], "there is no model 'qwen3' (models are "),
    (["Qwen/Qwen2.5-0.5B", "hi"], "there is no model 'Qwen/Qwen2.5-0.5B'; did you mean hf:Qwen/Qwen2.5-0.5B?"),
    ([], "the prompt is missing (headrace run smollm2:135m \"PROMPT\", or headrace chat smollm2:135m to talk)"),
    (["smollm2:135m"], "the prompt is missing"),
])
def test_names_of_models_are_not_answered(headrace, words, message):
    for command in ("run",) + (("tokenize",) if len(words) == 1 and ":" not in words[0] else ()):
        refused = headrace(command, *words)
        assert refused.stderr.startswith("headrace: " + message), refused.stderr
        assert (refused.returncode, refused.stdout) == (2, "")


def test_file_that_is_no_model_is_not_answered(headrace, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("to do")
    refused = headrace("run", notes)
    assert refused.returncode == 2 and "is a file or folder, but no model" in refused.stderr
    missing = headrace("run", "./none.gguf", "hi")
    assert missing.returncode == 1 and "there is no file or folder './none.gguf'" in missing.stderr


def test_plain_words_are_text(headrace):
    for words in (["hello"], ["why?"], ["and/or"], ["note:this"], ["3/4"], ["What", "is", "gemma3?"], ["a file.txt"]):
        tried = headrace("run", *words)  # no model has been pulled here
        assert "headrace pull smollm2:135m" in tried.stderr, tried.stderr
        assert tried.returncode == 1


def test_bytes_that_are_no_text_are_refused(headrace, model, tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n")
    for command, what in (("run", "the prompt"), ("tokenize", "the text")):
        with picture.open() as file:
            refused = headrace(command, model, stdin=file)
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"headrace: {what} is not UTF-8 text: byte 1 is 0x89 (")
    with picture.open() as file:
        assert "(the message is not UTF-8 text: byte 1 is 0x89)" in headrace("chat", model, stdin=file).stderr


def test_answers_hold_to_a_form(headrace, model, tmp_path):
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"],
              "additionalProperties": False}
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    for given in (json.dumps(schema), file):
        held = headrace("run", "-m", model, "--temperature", 1.5, "--json-schema", given, "Sure?")
        assert held.returncode == 0 and set(json.loads(held.stdout)) == {"sure"}, held.stderr
    held = headrace("run", "-m", model, "--temperature", 1.5, "--regex", "[a-c]{3}[0-9]", "Hi")
    assert re.fullmatch("[a-c]{3}[0-9]\n", held.stdout), held.stderr
    held = headrace("run", "-m", model, "--raw", "--grammar", 'start: "ye" "s"+ | "no"', "Hi", "--seed", 3)
    assert held.stdout.startswith(("yes", "no")), held.stderr
    held = headrace("chat", "-m", model, "--regex", "(yes|no)", input="Hi\nAgain\n")
    assert re.fullmatch("((yes|no)\n){2}", held.stdout), held.stderr
    wrong = headrace("run", "-m", model, "--json-schema", '{"type": "strung"}', "Hi")
    assert wrong.returncode == 2 and "JSON schema cannot be enforced" in wrong.stderr
    both = headrace("run", "-m", model, "--regex", "a", "--grammar", 'start: "a"', "Hi")
    assert both.returncode == 2 and "one form" in both.stderr


def test_a_folder_in_the_place_of_a_file_is_refused_and_pipes_are_read(headrace, model, tmp_path):
    (tmp_path / "note.txt").write_text("words")
    commands = [["run", "-m", model, "--attach", tmp_path, "Hi"], ["eval", "perplexity", model, tmp_path],
                ["run", "-m", model, "--json-schema", tmp_path, "Hi"], ["run", "-m", model, "--grammar", tmp_path, "Hi"]]
    for words in commands:
        refused = headrace(*words)
        assert refused.returncode == 2, words
        assert f"cannot read '{tmp_path}': it is a folder, needed is a regular file or a pipe" in refused.stderr, words
    for path in (tmp_path / "note.txt", "/dev/stdin"):
        read = headrace("run", "-m", model, "--raw", "--max-tokens", 1, "--attach", path, "Hi", input="words")
        assert read.returncode == 0, read.stderr


def test_two_models_are_one_too_many(headrace, model):
    refused = headrace("inspect", "-m", model, "smollm2:135m")
    assert refused.returncode == 2 and "two models are named" in refused.stderr


def test_model_alone_begins_a_conversation_in_a_terminal(terminal, model):
    window = terminal("run", model)
    window.wait_for(">>> ")
    window.send("\x04")
    assert window.close() == 0


def test_seed_is_random_printed_and_repeatable(headrace, model):
    first, second = (headrace("run", model, "Hi", "--stats", "--temperature", 1, "--max-tokens", 16) for _ in range(2))
    assert first.stdout != second.stdout
    seed = re.search(r"seed (\d+)$", first.stderr.strip()).group(1)
    again = headrace("run", model, "Hi", "--temperature", 1, "--max-tokens", 16, "--seed", seed)
    assert again.stdout == first.stdout


def test_sampling_is_the_option_else_the_models_own_else_ours(headrace, model, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(model, own)
    (own / "generation_config.json").write_text(json.dumps({"temperature": 0.1, "top_k": 3, "top_p": 0.5}))

    def text(folder, *options):
        return headrace("run", folder, "Hi", "--seed", 5, "--max-tokens", 24, *options).stdout

    assert text(own) == text(model, "--temperature", 0.1, "--top-k", 3, "--top-p", 0.5)
    assert text(own, "--temperature", 2) == text(model, "--temperature", 2, "--top-k", 3, "--top-p", 0.5)
    assert text(model) == text(model, "--temperature", 0.7, "--top-p", 0.95)
    assert text(model) != text(own)


def test_cut_answer_says_so(headrace, model):
    assert "(cut after 8 tokens; --max-tokens allows more)" in headrace("run", model, "Hi", "--max-tokens", 8).stderr
    full = headrace("run", model, "Hi", "--max-tokens", 900, "--context", 64)
    assert "(cut: the context of 64 tokens is full; --context may allow more)" in full.stderr
    assert headrace("run", model, "Hi", "--max-tokens", 8, "--quiet").stderr == ""
    long = headrace("run", model, "x" * 80, "--context", 64)
    assert long.returncode == 2 and "and the context holds 64 with the answer" in long.stderr
    assert "(shorten the prompt, or give a larger --context)" in long.stderr


def test_what_keeps_the_context_short_is_named(headrace, model):
    memory = ["--kv-memory", "64K"]
    long = headrace("run", model, "x" * 5000, *memory)
    assert long.returncode == 2 and "(shorten the prompt, or give a larger --kv-memory)" in long.stderr, long.stderr
    talk = headrace("chat", model, *memory, input="x" * 5000)
    assert "(shorten it, or start with a larger --kv-memory)" in talk.stderr, talk.stderr
    full = headrace("run", model, "Hi", *memory, "--max-tokens", 5000)
    assert "tokens is full; --kv-memory may allow more)" in full.stderr, full.stderr
    whole = headrace("run", model, "--context", 131072, input="x" * 140000)
    assert whole.stderr.endswith("and the context holds 131072 with the answer (shorten the prompt)\n"), whole.stderr


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["version"], ["version", "--list-kernels"],
                                   ["tokenize", "MODEL", "Hi"], ["inspect", "MODEL", "--tensors"],
                                   ["inspect", "MODEL", "--json"], ["run", "MODEL", "Hi", "--max-tokens", "30000"]])
def test_output_that_does_not_arrive_is_an_error(headrace, model, words):
    words = [str(model) if word == "MODEL" else word for word in words]
    with open("/dev/full", "w") as full:
        lost = headrace(*words, stdout=full)
    assert lost.returncode == 1
    assert lost.stderr.endswith("headrace: cannot write to standard output: No space left on device\n")
    closed = subprocess.run(["bash", "-c", '"$@" >&-', "bash", kBinary, *words], stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert closed.returncode == 1 and "cannot write to standard output: Bad file descriptor" in closed.stderr


@pytest.mark.parametrize("ignored", [False, True])
def test_reader_that_goes_away_ends_the_answer_quietly(model, ignored):
    process = subprocess.Popen([kBinary, "run", str(model), "Hi", "--max-tokens", "30000"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=not ignored)
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(60) == (141 if ignored else -13)  # the whole answer would end with 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_progress_leaves_nothing_on_a_narrow_terminal(terminal, model):
    window = terminal("run", model, "Hi", "--max-tokens", 1, columns=24)
    assert window.close() == 0
    assert "loading" not in Screen(24).feed(window.written).text()
    assert all(len(line) < 24 for line in re.findall(r"\r([^\r\n\x1b]* % of [^\r\n\x1b]*)", window.written))


def test_interrupted_answer_ends_with_130(model):
    process = subprocess.Popen([kBinary, "run", str(model), "Hi", "--max-tokens", "30000"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and output.endswith(b"\n") and errors == b""


@pytest.mark.skipif("HEADRACE_TEST_MODELS" not in os.environ, reason="needs HEADRACE_TEST_MODELS")
def test_pull_says_that_a_base_model_is_one(headrace):
    store = {"HEADRACE_STORE": os.environ["HEADRACE_TEST_MODELS"]}
    assert "it is a base model" in headrace("pull", "gemma3:270m", env=store).stderr
    assert "base model" not in headrace("pull", "smollm2:135m", env=store).stderr
    assert headrace("pull", "gemma3:270m", "--quiet", env=store).stderr == ""


def test_output_of_tools_is_for_people_and_json_for_programs(headrace, model):
    shown = headrace("tokenize", model, "a b\n").stdout.splitlines()
    assert [line.split(None, 1)[1] for line in shown[:-1]][-4:] == ['"a"', '" "', '"b"', '"\\n"']
    assert "part of a character" in headrace("tokenize", model, "ü").stdout
    assert isinstance(json.loads(headrace("tokenize", model, "a b\n", "--json").stdout), list)
    ids = json.loads(headrace("tokenize", model, "Grüße", "--json", "--no-special").stdout)
    assert headrace("tokenize", model, "--decode", *ids).stdout == "Grüße\n"
    assert json.loads(headrace("tokenize", model, "--json", "--decode", *ids).stdout) == "Grüße"
    inspected = headrace("inspect", model).stdout
    assert not re.search(r"[{}\[\]]|null|true|false", inspected)
    assert "longest context    131,072" in inspected
    assert set(json.loads(headrace("inspect", model, "--json").stdout)) == {"file", "model", "memory", "text"}
    assert json.loads(headrace("version", "--json").stdout)["build"]["version"] in headrace("version").stdout


@pytest.mark.skipif("HEADRACE_TEST_MODELS" not in os.environ, reason="needs HEADRACE_TEST_MODELS")
def test_words_of_an_answer_stay_whole_on_a_terminal(terminal, headrace):
    model = os.path.join(os.environ["HEADRACE_TEST_MODELS"], "smollm2-135m.gguf")
    words = ["run", model, "Tell me about the sea.", "--temperature", 0, "--max-tokens", 60, "--quiet"]
    plain = headrace(*words).stdout
    window = terminal(*words, columns=30)
    assert window.close() == 0
    lines = Screen(30).feed(window.written).text().splitlines()
    assert max(map(len, lines)) < 30
    assert " ".join(" ".join(lines).split()) == " ".join(plain.split())
