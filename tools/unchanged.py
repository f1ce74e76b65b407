#!/usr/bin/env python3
"""Which tests need not run again: their program, what they read and the machine are as they were when they last passed.

    tools/unchanged.py choose BUILD LIST [CTEST ARGUMENT...]   writes LIST for "ctest -I": the tests to run; prints how
                                                               many, and how many had passed and been skipped of the rest
    tools/unchanged.py keep BUILD LOG [CTEST ARGUMENT...]      keeps what passed in the log of "ctest --output-on-failure"
    tools/unchanged.py suite BUILD NAME PATH...                prints "PASSED SKIPPED" kept for a suite, or fails
    tools/unchanged.py suite BUILD NAME PATH... --passed P S   keeps them

A program is a unit: its digest, that of the program under test where it starts that one, the data that tests read (DATA),
the variables HEADRACE_*, the models by size and time, and the processor's features make its key. Keys and counts are kept in
build/results/passed/BUILD.json (docs/adr/0040-set-up-and-test-time.md). With FRESH=1 nothing counts as passed before.
"""
import collections
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What C++ tests read of the repository. A test that reads more has to be entered here.
DATA = ["tests/data", "tests/hub", "tests/http/recordings", "tools/make_tiny_ggufs.py", "tools/requirements.txt",
        "docs/api-fields.md"]
FETCHED = ["HEADRACE_GOLDEN", "HEADRACE_TEST_MODELS", "HEADRACE_TEST_TOKENIZERS", "HEADRACE_TEST_TEMPLATES"]
UNDER_TEST = "bin/headrace"
IGNORED = {"__pycache__", "node_modules", ".pytest_cache"}
RESULT = re.compile(r"^ *\d+/\d+ +Test +#\d+: (.+?) \.*(\*\*\*| )+(Passed|Skipped|Failed|Timeout|Exception|Not Run)")


def files_of(path):
    if path.is_file():
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(set(folders) - IGNORED)
        found += [pathlib.Path(folder) / name for name in sorted(names)]
    return found


def digest_of(paths):
    total = hashlib.sha256()
    for path in paths:
        for file in files_of(path):
            total.update(f"{file.name} ".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def stamps_of(folder):
    """Large files that are fetched: by name, size and time."""
    stats = [(str(file.relative_to(folder)), file.stat()) for file in files_of(folder) if folder.is_dir()]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats if not name.startswith(".locks")]


def features():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}), os.cpu_count()


@functools.cache
def surroundings():
    variables = {name: value for name, value in os.environ.items()
                 if name.startswith(("HEADRACE_", "ASAN_", "TSAN_", "UBSAN_")) and name != "HEADRACE_ORIGINAL_PATH"}
    stamps = {name: stamps_of(pathlib.Path(variables[name])) for name in FETCHED if variables.get(name)}
    return json.dumps([variables, stamps, features()])


def key_of(paths):
    return hashlib.sha256((surroundings() + digest_of(paths)).encode()).hexdigest()


def key_of_program(program, build):
    paths = [program] + [ROOT / name for name in DATA]
    under_test = ROOT / "build" / build / UNDER_TEST
    if UNDER_TEST.encode() in program.read_bytes() and under_test.exists():
        paths.append(under_test)
    return key_of(paths)


class Passed:
    """What has passed, by unit: {"key", "passed", "skipped"}."""

    def __init__(self, build):
        self.path = ROOT / "build/results/passed" / f"{build}.json"
        self.units = json.loads(self.path.read_text()) if self.path.exists() else {}

    def find(self, unit, key):
        kept = self.units.get(unit)
        return kept if kept and kept["key"] == key and os.environ.get("FRESH") != "1" else None

    def keep(self, unit, key, passed, skipped):
        self.units[unit] = {"key": key, "passed": passed, "skipped": skipped}

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.units, indent=1, sort_keys=True) + "\n")


def tests_of(build, arguments):
    """Program -> [(position, name)] of the tests that ctest would run; None: commands that always run."""
    shown = subprocess.run(["ctest", "--test-dir", str(ROOT / "build" / build), "--show-only=json-v1", *arguments],
                           check=True, capture_output=True, text=True).stdout
    programs = collections.defaultdict(list)
    for position, test in enumerate(json.loads(shown)["tests"], start=1):
        command = pathlib.Path(test.get("command", [""])[0])
        is_ours = command.parent == ROOT / "build" / build / "bin"
        programs[command if is_ours else None].append((position, test["name"]))
    return programs


def choose(build, out, arguments):
    passed, chosen, spared = Passed(build), [], collections.Counter()
    for program, tests in tests_of(build, arguments).items():
        kept = program and passed.find(program.name, key_of_program(program, build))
        if kept and kept["passed"] + kept["skipped"] == len(tests):
            spared.update({"passed": kept["passed"], "skipped": kept["skipped"]})
        else:
            chosen += [position for position, _ in tests]
    # ctest's form: no range (start, end, stride), then positions among the tests that its other arguments leave.
    pathlib.Path(out).write_text("0,0,0," + ",".join(map(str, sorted(chosen))) + "\n")
    print(len(chosen), spared["passed"], spared["skipped"])


def results_in(log):
    """Name -> outcome of each test in a log of ctest."""
    return {match[1]: match[3] for match in map(RESULT.match, log.splitlines()) if match}


def keep(build, log, arguments):
    results, passed = results_in(pathlib.Path(log).read_text(errors="replace")), Passed(build)
    for program, tests in tests_of(build, arguments).items():
        outcomes = collections.Counter(results.get(name, "absent") for _, name in tests)
        if not program or "absent" in outcomes:
            continue
        if set(outcomes) <= {"Passed", "Skipped"}:
            passed.keep(program.name, key_of_program(program, build), outcomes["Passed"], outcomes["Skipped"])
        else:
            passed.units.pop(program.name, None)
    passed.write()


def suite(build, name, arguments):
    counts = []
    if "--passed" in arguments:
        at = arguments.index("--passed")
        arguments, counts = arguments[:at], [int(count) for count in arguments[at + 1:]]
    key, passed = key_of([ROOT / path for path in arguments]), Passed(build)
    if counts:
        passed.keep(name, key, *counts)
        passed.write()
        return 0
    kept = passed.find(name, key)
    if kept:
        print(kept["passed"], kept["skipped"])
    return 0 if kept else 1


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    work, build, target, *arguments = sys.argv[1:]
    return {"choose": choose, "keep": keep, "suite": suite}[work](build, target, arguments)


if __name__ == "__main__":
    sys.exit(main())
