"""The life of a model in a process: threads, interrupts, dropped streams, forks, several at once, its end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import headrace
import pytest

kEndless = {"max_tokens": 400, "ignore_eos": True, "temperature": 0}


def running(llm):
    return llm.num_running


def eventually(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def run_python(program, *arguments, **options):
    """A process of its own, which ends by itself."""
    return subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(program), *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, **options)


def test_errors_of_loading(tmp_path):
    with pytest.raises(headrace.Error) as found:
        headrace.LLM(tmp_path / "absent.gguf")
    assert found.value.code == "not_found"
    with pytest.raises(headrace.Error, match="--kv-type"):
        headrace.LLM(tmp_path, kv_type="f12")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and then nothing")
    with pytest.raises(headrace.Error):
        headrace.LLM(tmp_path / "bad.gguf")


def test_closing(folder):
    llm = headrace.LLM(folder, context=512, threads=1)
    stream = llm.stream("abc", max_tokens=500, ignore_eos=True, n=16)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(headrace.Error) as found:
        list(stream)
    assert found.value.code == "unavailable"
    with pytest.raises(headrace.Error, match="closed"):
        llm.generate("abc")
    assert not llm.is_healthy()


def test_dropped_streams_are_cancelled(llm):
    stream = llm.stream("abc", **kEndless)
    next(stream)
    del stream
    eventually(lambda: running(llm) == 0)
    with llm.stream("abc", **kEndless) as stream:
        next(stream)
    eventually(lambda: running(llm) == 0)
    for piece in llm.stream("abc", **kEndless):
        assert piece.choice == 0
        break
    eventually(lambda: running(llm) == 0)


def test_a_stream_keeps_its_model(folder):
    stream = headrace.LLM(folder, context=512, threads=1).stream("abc", max_tokens=20, ignore_eos=True)
    assert list(stream)[-1].finish_reason == "length"


def test_threads_share_a_model(llm):
    alone = [llm.generate(f"thread {i}", max_tokens=10, temperature=0).text for i in range(8)]
    found = [None] * 8

    def ask(i):
        found[i] = llm.generate(f"thread {i}", max_tokens=10, temperature=0).text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_waiting_leaves_the_interpreter_free(llm):
    ticks = 0
    done = threading.Event()
    wanted = {"max_tokens": 500, "ignore_eos": True, "n": 16}
    thread = threading.Thread(target=lambda: (llm.generate("abc", **wanted), done.set()))
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 3


def test_two_models_at_once(llm, folder):
    with headrace.LLM(folder, context=256, threads=1) as second:
        streams = [each.stream("abc", max_tokens=20, temperature=0, ignore_eos=True) for each in (llm, second)]
        pairs = list(zip(*streams, strict=True))
        assert all(a.text == b.text for a, b in pairs)
        assert second.context == 256
    assert llm.generate("abc", max_tokens=2).usage.output_tokens == 2


def test_an_interrupt_ends_the_wait(folder):
    ended = run_python("""
        import os, signal, sys, threading, time, headrace
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may ignore it
        llm = headrace.LLM(sys.argv[1], context=1024, threads=1)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        try:
            for i in range(10_000):
                llm.generate("abc", max_tokens=900, ignore_eos=True, n=8)
        except KeyboardInterrupt:
            assert time.monotonic() - begin < 20
            while llm.num_running:
                time.sleep(0.01)
            print("interrupted", llm.generate("abc", max_tokens=2).usage.output_tokens)
        """, folder)
    assert ended.stdout == "interrupted 2\n", ended.stderr


def test_the_interpreter_ends_with_models_and_streams_open(folder):
    ended = run_python("""
        import sys, headrace
        llm = headrace.LLM(sys.argv[1], threads=1)
        stream = llm.stream("abc", max_tokens=400, ignore_eos=True)
        next(stream)
        print("end")
        """, folder)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_forks_are_refused(folder):
    ended = run_python("""
        import os, sys, headrace
        llm = headrace.LLM(sys.argv[1], threads=1)
        stream = llm.stream("abc", max_tokens=400, ignore_eos=True)
        next(stream)
        child = os.fork()
        if child == 0:
            for call in (lambda: llm.generate("abc"), lambda: list(stream), lambda: list(llm.stream("abc"))):
                try:
                    call()
                except headrace.Error as error:
                    assert error.code == "unavailable" and "fork" in str(error), error
                else:
                    os._exit(1)
            llm.close()
            del llm, stream
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(len(list(stream)) > 10, llm.generate("abc", max_tokens=2).usage.output_tokens)
        """, folder)
    assert ended.stdout == "True 2\n", ended.stderr


def _in_child(folder, results):
    with headrace.LLM(folder, threads=1) as llm:
        results.put(llm.generate("abc", max_tokens=6, temperature=0).text)


def test_spawned_processes_load_their_own(folder, llm):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_in_child, args=(str(folder), results))
    process.start()
    assert results.get(timeout=60) == llm.generate("abc", max_tokens=6, temperature=0).text
    process.join()
    assert process.exitcode == 0


def test_no_descriptors_or_threads_are_left(folder):
    def count(what):
        return len(os.listdir(f"/proc/self/{what}"))

    def use():
        with headrace.LLM(folder, context=256, threads=1) as llm:
            llm.generate([{"role": "user", "content": "x"}], max_tokens=3)
            list(llm.stream("abc", max_tokens=3))

    use()
    before = count("fd"), count("task")
    use()
    eventually(lambda: (count("fd"), count("task")) <= before)


def test_signals_stay_the_programs_own(folder):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE, signal.SIGCHLD)
    before = [signal.getsignal(number) for number in numbers]
    with headrace.LLM(folder, context=256, threads=1) as llm:
        llm.generate("abc", max_tokens=1)
        assert [signal.getsignal(number) for number in numbers] == before
