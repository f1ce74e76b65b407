"""A step that hangs: one thread of the server is held, as a fault of the system or a bug would hold it."""

import contextlib
import ctypes
import os
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

kHungStatus = 70
kSeize, kInterrupt = 0x4206, 0x4207  # of ptrace
kAnyChild = 0x40000000  # of waitpid: threads too


def engine_thread(process):
    tasks = Path(f"/proc/{process}/task").iterdir()
    return next(int(task.name) for task in tasks if (task / "comm").read_text() == "hr-engine\n")


def hold(thread):
    """Stops one thread alone; what it computes never ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(kSeize, thread, None, None) != 0:
        pytest.skip("this system lets no process hold another's thread: " + os.strerror(ctypes.get_errno()))
    assert libc.ptrace(kInterrupt, thread, None, None) == 0


def status_of(process, thread):
    """The process's exit status; the thread that was held is collected beside it."""
    end = time.monotonic() + 60
    while process.poll() is None:
        assert time.monotonic() < end, "the server did not end"
        with contextlib.suppress(ChildProcessError):
            os.waitpid(thread, os.WNOHANG | kAnyChild)
        time.sleep(0.01)
    return process.returncode


class Crowd:
    """Clients that ask until something goes wrong."""

    def __init__(self, server, count):
        self.server = server
        self.ends = []  # of each client: status and text
        self.num_answers = 0
        self.threads = [threading.Thread(target=self.ask, args=(n,)) for n in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, n):
        body = {"prompt": f"of {n}", "max_tokens": 200, "ignore_eos": True, "stream": n % 2 == 0}
        while True:
            try:
                answer = httpx.post(self.server.url + "/v1/completions", json=body, timeout=120)
            except httpx.HTTPError as error:  # the server is gone
                return self.ends.append((0, str(error)))
            if answer.status_code != 200 or "error" in answer.text:
                return self.ends.append((answer.status_code, answer.text))
            self.num_answers += 1

    def wait_for(self, num_answers):
        end = time.monotonic() + 60
        goal = self.num_answers + num_answers
        while self.num_answers < goal:
            assert time.monotonic() < end, "the server answers no more"
            time.sleep(0.01)

    def join(self):
        for thread in self.threads:
            thread.join(120)


def test_a_hung_engine_ends_all_requests_and_the_process(serve):
    with serve("--threads", "1", "--step-deadline", "2", "--max-sequences", "2") as server:
        crowd = Crowd(server, 4)  # two of them wait
        crowd.wait_for(8)
        held = engine_thread(server.process.pid)
        hold(held)
        begin = time.monotonic()
        assert status_of(server.process, held) == kHungStatus
        assert time.monotonic() - begin >= 1.5
        crowd.join()
        told = [end for end in crowd.ends if "the computation of this request hangs and was given up" in end[1]]
        assert told, crowd.ends
        assert {status for status, _ in told} <= {200, 503}, told  # 200: an event of a stream
        log = "".join(server.errors)
        assert "the engine hangs " in log and "live: request " in log, log


def test_a_process_that_was_stopped_hangs_nowhere(serve):
    with serve("--threads", "1", "--step-deadline", "1") as server:
        crowd = Crowd(server, 2)
        crowd.wait_for(4)
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(3)  # in which nothing may happen
        os.kill(server.process.pid, signal.SIGCONT)
        crowd.wait_for(4)
        assert server.process.poll() is None
        assert server.stop(signal.SIGTERM) == 0
        crowd.join()
        assert "hangs" not in "".join(server.errors)
