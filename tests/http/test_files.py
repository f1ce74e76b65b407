"""Files that change under a server, files that are none, and machines with too little memory.

Never another answer: the same one, or an end with one line that says why. HEADRACE_TEST_MODELS may name a folder
with a larger model (smollm2-135m.gguf), whose load takes long enough to be met in the middle.
"""

import concurrent.futures
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from canary import answer, unharmed
from conftest import Server, kBinary

import tiny_model

kGroups = Path("/sys/fs/cgroup/memory")


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}


@contextlib.contextmanager
def served(model, *options, **limits):
    server = Server(model, *options, **limits)
    try:
        yield server
    finally:
        server.stop(signal.SIGKILL)


def run(model, *options, limit=None, seconds=60, prompt="Hello"):
    """The program's status, output and errors for one prompt, in at most `limit` bytes of address space."""

    def set_limit():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        [kBinary, "run", "--model", str(model), "--temperature", "0", "--max-tokens", "8", "--quiet", *options, prompt],
        capture_output=True, timeout=seconds, env=environment(), preexec_fn=set_limit)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def is_one_line_error(status, errors):
    lines = [line for line in errors.splitlines() if line.startswith("headrace: ")]
    return status == 1 and len(lines) == 1


kNoise = random.Random(5).randbytes(1 << 20)


def overwrite(path):
    """Other bytes in the same place and length."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        while file.tell() < size:
            file.write(kNoise[:size - file.tell()])


def truncate(path):
    os.truncate(path, path.stat().st_size // 3)


def cut_to_nothing(path):
    os.truncate(path, 0)


def replace(path):
    other = path.with_suffix(".other")
    other.write_bytes(kNoise)
    os.replace(other, path)


kChanges = [overwrite, truncate, cut_to_nothing, replace, os.remove]


@pytest.fixture(scope="module")
def real_model():
    path = Path(os.environ.get("HEADRACE_TEST_MODELS", "")) / "smollm2-135m.gguf"
    if not path.is_file():
        pytest.skip("set HEADRACE_TEST_MODELS to a folder with smollm2-135m.gguf")
    return path


@pytest.fixture
def copy(tmp_path):
    return tiny_model.write(tmp_path / "tiny")


@pytest.mark.parametrize("change", kChanges)
def test_a_weight_cache_that_changes_while_serving_changes_no_answer(copy, tmp_path, change):
    cache = tmp_path / "cache"
    expected = []
    for _ in range(2):  # packed and kept, then read
        with served(copy, "--weight-cache", str(cache)) as server:
            expected.append(answer(server))
    assert expected[0] == expected[1]
    with served(copy, "--weight-cache", str(cache)) as server, unharmed(server):
        assert answer(server) == expected[0]
        change(next(cache.glob("*.hrpack")))
        assert answer(server) == expected[0]
    with served(copy, "--weight-cache", str(cache)) as server:
        assert answer(server) == expected[0]
        warned = [line for line in server.errors if "weight cache file" in line]
        assert len(warned) == (0 if change is os.remove else 1), server.errors


@pytest.mark.parametrize("change", kChanges)
def test_a_model_that_changes_while_serving_changes_no_answer(copy, change):
    with served(copy) as server, unharmed(server):
        expected = answer(server)
        for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"]:
            change(copy / name)
        assert answer(server) == expected


def names_of_open_files(folder):
    """What the descriptors in /proc/PID/fd stand for. One closed between the listing and the look is not open."""
    names = []
    for link in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(link))
    return names


def test_nothing_of_the_files_stays_mapped_or_open(copy, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        with served(copy, "--weight-cache", str(cache)) as server:
            folder = Path(f"/proc/{server.process.pid}")
            names = (folder / "maps").read_text() + " ".join(names_of_open_files(folder / "fd"))
            assert str(tmp_path) not in names


def outcome_of_change_during_load(model, change, delay, expected, options=()):
    """Starts a run, changes the model's file after a while; says what came of it."""
    process = subprocess.Popen(
        [kBinary, "run", "--model", str(model), "--temperature", "0", "--max-tokens", "8", "--quiet", *options, "Hello"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    time.sleep(delay)
    change(model)
    output, errors = process.communicate(timeout=60)
    errors = errors.decode(errors="replace")
    if process.returncode == 0:
        assert output == expected, "another answer"
        return "answered"
    assert is_one_line_error(process.returncode, errors), (process.returncode, errors)
    return "refused" if model.name in errors else "other: " + errors


@pytest.fixture(scope="module")
def undisturbed(real_model):
    """What the model answers, and the seconds that a whole run takes."""
    begin = time.monotonic()
    status, expected, errors = run(real_model)
    assert status == 0, errors
    return expected, time.monotonic() - begin


@pytest.mark.parametrize("change", kChanges)
def test_a_model_that_changes_during_the_load_is_refused_or_not_noticed(real_model, undisturbed, tmp_path, change):
    expected, seconds = undisturbed
    outcomes = []
    for share in [0.1, 0.3, 0.8, 0.2, 0.15, 0.25, 0.4, 0.35]:  # the first three, and more while none came in time
        if len(outcomes) >= 3 and "refused" in outcomes:
            break
        model = tmp_path / "changing.gguf"
        shutil.copyfile(real_model, model)
        outcomes.append(outcome_of_change_during_load(model, change, share * seconds, expected))
    assert set(outcomes) <= {"answered", "refused"}, outcomes
    assert "refused" in outcomes


def test_a_tokenizer_that_changes_during_the_load_is_refused_or_not_noticed(copy):
    status, expected, errors = run(copy)
    assert status == 0, errors
    outcomes = set()
    for i in range(8):
        shutil.rmtree(copy)
        tiny_model.write(copy)
        process = subprocess.Popen(
            [kBinary, "run", "--model", str(copy), "--temperature", "0", "--max-tokens", "8", "--quiet", "Hello"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        time.sleep(0.004 * i)
        for name in ["tokenizer.json", "tokenizer_config.json"]:
            overwrite(copy / name)
        output, errors = process.communicate(timeout=60)
        errors = errors.decode(errors="replace")
        assert output == expected if process.returncode == 0 else is_one_line_error(process.returncode, errors), errors
        outcomes.add(process.returncode)
    assert outcomes <= {0, 1}


def test_special_files_are_refused_at_once(copy, tmp_path):
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    folder = tmp_path / "folder"
    shutil.copytree(copy, folder)
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    strange = tmp_path / "strange"
    shutil.copytree(copy, strange)
    (strange / "tokenizer.json").unlink()
    os.mkfifo(strange / "tokenizer.json")
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    models = [pipe, folder, strange, loop, "/dev/zero", "/dev/null", "/proc/self/mem", "/proc/kmsg", "/proc/self/maps",
              tmp_path, "/proc"]
    for model in models:
        status, _, errors = run(model, seconds=20)
        assert is_one_line_error(status, errors), (model, status, errors)


def test_an_unreadable_file_beside_the_weights_is_not_taken_for_absent(copy):
    (copy / "tokenizer_config.json").unlink()
    (copy / "tokenizer_config.json").mkdir()  # a form of unreadable that holds for every user
    status, _, errors = run(copy)
    assert is_one_line_error(status, errors) and "tokenizer_config.json" in errors, errors


def test_every_limit_of_address_space_gives_an_answer_or_one_line(model):
    status, expected, errors = run(model)
    assert status == 0, errors
    outcomes = {}
    for mib in [64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048]:
        status, output, errors = run(model, limit=mib << 20)
        outcomes[mib] = status
        if status == 0:
            assert output == expected
        else:
            # Below what the program itself takes, the system's loader says so, not we.
            by_loader = status == 127 and "shared libraries" in errors
            assert by_loader or is_one_line_error(status, errors), (mib, status, errors)
    assert outcomes[2048] == 0 and 1 in outcomes.values(), outcomes


def test_a_server_in_little_address_space_starts_or_says_what_it_needs(model):
    outcomes = {}
    for mib in [128, 192, 256, 384, 512, 1024, 2048]:
        process = subprocess.Popen([kBinary, "serve", str(model), "--port", "0", "--quiet"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment(),
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)))
        line = process.stdout.readline()
        if line.startswith("listening"):
            process.terminate()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0 or is_one_line_error(process.returncode, errors), (mib, process.returncode, errors)
        outcomes[mib] = process.returncode
    assert outcomes[2048] == 0, outcomes


def test_a_model_that_does_not_fit_is_refused_with_what_it_needs(model):
    status, _, errors = run(model, "--kv-memory", "900G")
    assert is_one_line_error(status, errors)
    assert "needs 900" in errors and "keys and values 900 GiB" in errors and "--kv-memory" in errors, errors


@pytest.fixture
def memory_group():
    group = kGroups / f"headrace-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(360 << 20))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    for _ in range(50):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def test_honest_requests_fit_in_a_control_group(real_model, memory_group):
    enter = lambda: (memory_group / "tasks").write_text(str(os.getpid()))  # noqa: E731
    words = "one two three four five six seven eight nine ten "
    with served(real_model, preexec_fn=enter) as server:
        assert 0 < server.metric("headrace:kv_bytes_reserved") < 150 << 20
        with unharmed(server, grown_mib=300), httpx.Client(timeout=300) as client:

            def ask(i):
                return client.post(server.url + "/v1/completions", json={
                    "prompt": f"{i} " + words * 50, "max_tokens": 2, "temperature": 0}).status_code

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                assert set(pool.map(ask, range(8))) == {200}


def test_keys_and_values_are_reserved_at_start_and_touched_in_use(serve):
    with serve() as server:
        reserved = server.metric("headrace:kv_bytes_reserved")
        assert reserved > 0 and server.metric("headrace:kv_bytes_touched") == 0
        answer(server)
        touched = server.metric("headrace:kv_bytes_touched")
        assert 0 < touched < reserved
        answer(server)
        assert server.metric("headrace:kv_bytes_touched") <= 2 * touched
        assert server.metric("headrace:kv_bytes_reserved") == reserved


def test_more_threads_than_there_are_cores_are_not_used(model):
    cores = len(os.sched_getaffinity(0))
    with served(model, "--threads", "512") as server:
        warned = [line for line in server.errors if "--threads is 512" in line]
        assert len(warned) == 1, server.errors
        assert len(os.listdir(f"/proc/{server.process.pid}/task")) < cores + 64
        expected = answer(server)
    with served(model) as server:
        assert answer(server) == expected
        assert not [line for line in server.errors if "--threads" in line]


def test_the_numerics_id_is_the_same_everywhere(model, serve):
    def told(*options):
        text = subprocess.run([kBinary, "version", "--json", *options], capture_output=True, env=environment()).stdout
        return json.loads(text)["machine"]["numerics_id"]

    ids = set()
    for options in [(), ("--kv-type", "int8"), ("--activations", "fast"), ("--isa", "reference")]:
        with serve(*options) as server:
            shown = httpx.get(server.url + "/health").json()
            fingerprint = answer(server)[2]
        assert told(*options) == shown["numerics_id"]
        assert len(told()) == len("hr-") + 16 and told().startswith("hr-")
        assert fingerprint.startswith(shown["numerics_id"] + "-")
        ids.add(shown["numerics_id"])
    assert len(ids) == 4
