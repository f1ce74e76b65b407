"""`headrace chat` as a person at a terminal meets it."""

import json
import os
import signal
import subprocess

import pytest

from conftest import kBinary

kPrompt = ">>> "
kEndless = ["--context", 131072, "--max-tokens", 100000]  # an answer of a minute


@pytest.fixture
def chat(terminal, model, tmp_path):
    """A conversation with short answers; said() is what it holds."""

    def start(*options, **settings):
        window = terminal("chat", settings.pop("model", model), "--max-tokens", 8, "--temperature", 0, *options,
                          **settings)
        window.wait_for(kPrompt)

        def said():
            path = tmp_path / "said.json"
            window.send(f"/save {path}\r")
            window.wait_for("saved to")
            window.wait_for(kPrompt)
            return [message["content"] for message in json.loads(path.read_text()) if message["role"] != "assistant"]

        window.said = said
        return window

    return start


def ask(window, text):
    window.send(text + "\r")
    window.wait_for("(cut after 8 tokens")
    window.wait_for(kPrompt)


@pytest.mark.parametrize("language", [{"LANG": "C"}, {"LANG": "C.UTF-8"}, {"LC_ALL": "POSIX"}, {"LANG": "xx_YY"}])
def test_typed_text_of_all_scripts_arrives(chat, language):
    window = chat(**language)
    ask(window, "Grüße, 日本語 and a 🦙é")
    assert window.said() == ["Grüße, 日本語 and a 🦙é"]


def test_characters_of_several_bytes_are_erased_whole(chat):
    window = chat(LANG="C")
    ask(window, "aé日\x7f\x7fb")
    assert window.said() == ["ab"]


def test_pasted_lines_are_one_message(chat):
    window = chat()
    ask(window, "Look: \x1b[200~def f():\n\treturn 'ü'\n\n# end\n\x1b[201~ ok?")
    ask(window, "\x1b[200~a\rb\x1b[201~")
    assert window.said() == ["Look: def f():\n\treturn 'ü'\n\n# end ok?", "a\nb"]


def test_paste_cannot_press_keys(chat):
    window = chat()
    ask(window, "\x1b[200~one\x04\x08\x1b[A\x1b[201\ntwo\x1b[201~")
    assert window.said() == ["one[A[201\ntwo"]


def test_terminal_is_asked_for_pastes_and_released(terminal, model):
    window = terminal("chat", model)
    window.wait_for("\x1b[?2004h")
    window.wait_for(kPrompt)
    window.send("\x04")
    assert window.close() == 0
    assert "\x1b[?2004l" in window.written


def test_block_between_quotes_is_one_message(chat):
    window = chat()
    window.send('"""first\r')
    window.wait_for("... ")
    window.send("\r")
    window.wait_for("... ")
    ask(window, 'third"""')
    assert window.said() == ["first\n\nthird"]


def test_greets_with_model_context_and_hint(terminal, model):
    window = terminal("chat", model, "--context", 2048)
    greeting = window.wait_for(kPrompt)
    greeting = " ".join(greeting.split())  # the line may be longer than the window
    assert "endless" in greeting and "context of 2,048 tokens" in greeting and "/help" in greeting
    window.send("/help\r")
    commands = window.wait_for(kPrompt)
    for name in ("/help", "/?", "/clear", "/system", "/undo", "/again", "/save", "/bye", "/exit", "Ctrl-C", '"""'):
        assert name in commands


@pytest.mark.parametrize("words", ["/bye", "/exit", "/quit", "exit", "quit", "\x04"])
def test_leaves_when_told(chat, words):
    window = chat()
    window.send(words if words == "\x04" else words + "\r")
    assert window.close() == 0


def test_clear_forgets_and_unknown_commands_are_no_questions(chat):
    window = chat()
    ask(window, "one")
    window.send("/claer\r")
    window.wait_for("did you mean /clear?")
    window.send("/clear\r")
    window.wait_for("new conversation")
    window.wait_for(kPrompt)
    assert window.said() == []
    ask(window, " /etc/hosts is a file")
    assert window.said() == [" /etc/hosts is a file"]


def test_interrupt_stops_the_answer_and_not_the_program(terminal, model):
    window = terminal("chat", model, *kEndless)
    window.wait_for(kPrompt)
    for _ in range(2):
        window.send("tell me all\r")
        window.wait_for("tell me all")
        while len(window.written) < 50:
            assert window.pump(1)
        window.send("\x03")
        window.wait_for("(stopped)")
        window.wait_for(kPrompt)
    window.send("half a thought\x03")
    window.wait_for("(Ctrl-D or /bye leaves)")
    window.wait_for(kPrompt)
    window.send("/undo\r")
    window.wait_for("2 messages left")
    window.wait_for(kPrompt)  # the terminal forgets an end that is typed between two prompts
    window.send("\x04")
    assert window.close() == 0


def test_sigterm_ends_it_at_the_prompt_and_in_an_answer(terminal, model):
    for question in ("", "tell me all\r"):
        window = terminal("chat", model, *kEndless)
        window.wait_for(kPrompt)
        window.send(question)
        while question and len(window.written) < 80:
            assert window.pump(1)
        window.pump(0.3)
        os.kill(window.pid, signal.SIGTERM)
        assert window.close() == 128 + signal.SIGTERM


def test_full_context_forgets_the_oldest_and_says_so(chat):
    window = chat("--context", 160, "--system", "Be kind to all.")
    for turn in range(6):
        window.send(f"This is question number {turn}, and it has a length.\r")
        before = window.wait_for("(cut after 8 tokens")
        window.wait_for(kPrompt)
        if turn > 2:
            assert "context of 160 tokens is full: the oldest 2 messages are forgotten" in before
    said = window.said()
    assert said[0] == "Be kind to all." and len(said) == 7
    window.send("x" * 200 + "\r")
    window.wait_for("and the context holds 160")
    window.wait_for(kPrompt)
    assert window.said() == said


def test_base_model_says_that_it_continues_text(terminal, headrace, model, base_model):
    window = terminal("chat", base_model)
    assert "it is a base model: it continues your text" in window.wait_for(kPrompt)
    run = headrace("run", base_model, "Once upon", "--max-tokens", 4)
    assert run.returncode == 0 and "it is a base model" in run.stderr
    assert "base model" not in headrace("run", base_model, "--raw", "Once upon", "--max-tokens", 4).stderr
    assert "base model" not in headrace("run", model, "Once upon", "--max-tokens", 4).stderr
    assert "a base model, it continues text" in headrace("inspect", base_model).stdout


def test_lines_from_a_pipe_are_messages_without_greeting(headrace, model):
    piped = headrace("chat", model, "--max-tokens", 4, input='hello\n"""a\nb"""\n/bye\nnever\n')
    assert piped.returncode == 0
    assert ">>>" not in piped.stdout and "/help" not in piped.stdout
    assert piped.stderr.count("(cut after 4 tokens") == 2


def test_typing_during_an_answer_does_not_show_but_counts(terminal, model, tmp_path):
    window = terminal("chat", model, "--max-tokens", 1500, "--temperature", 0)
    window.wait_for(kPrompt)
    window.send("tell me all\r")
    window.wait_for("tell me all")
    while len(window.written) < 50:
        assert window.pump(1)
    path = tmp_path / "said.json"
    window.send(f"/save {path}\n")
    assert str(path) not in window.wait_for("(cut after 1,500 tokens")
    window.wait_for("messages saved to")
    assert len(json.loads(path.read_text())) == 2


def test_plain_terminal_gets_no_sequences(terminal, model):
    window = terminal("chat", model, "--max-tokens", 64, TERM="dumb")
    shown = window.wait_for(kPrompt)
    window.send("Hi\r")
    shown += window.wait_for("(cut after 64 tokens")
    assert "\x1b" not in shown


def test_long_paste_is_taken_at_once_and_whole(chat):
    window = chat("--context", 128)
    text = "\n".join(f"line {number} with some words" for number in range(4000))
    window.send(f"\x1b[200~{text}\x1b[201~\r")
    refusal = window.wait_for("and the context holds 128")
    assert "the message has 1" in refusal


def test_interrupt_while_the_prompt_appears_is_not_lost(terminal, model):
    window = terminal("chat", model)
    window.wait_for(kPrompt)
    for _ in range(40):
        window.send("some text\x03")
        window.wait_for("leaves)")
        window.wait_for(kPrompt)


def test_signals_end_a_conversation_over_pipes(model):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([kBinary, "chat", str(model), "--max-tokens", "2"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        process.stdin.write("Hi\n")
        process.stdin.flush()
        assert process.stdout.read(1)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        process.stdin.close()
        process.stdout.close()
