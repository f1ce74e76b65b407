"""Runs the simulations on each seeded bug of the engine until one of them finds it.

    hunt.py PROGRAM [--limit SECONDS] [--jobs N] [--table FILE.md] [BUG...]

PROGRAM is test_engine_mutants. Without a bug all simulations must pass; each bug must be found within the limit (600
s). A bug is found when a simulation fails, or ends badly; one that is still running at the limit has not found it.
BUG: words of names, to hunt only those. Ends with 1 if fewer than 95 of 100 are found.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

import engine_bugs

# In this order, until one finds it: short runs, then long ones that share what time is left.
SCHEDULER = "SchedulerSim.EveryScheduleKeepsItsPromises"
CORE = "Parts/CoreSimPart.EveryPromiseIsKept/0"
CONTROL = [(SCHEDULER, {"HEADRACE_SIM_SCHEDULES": "500"}, 1), (CORE, {"HEADRACE_SIM_STEPS": "800000"}, 1)]
SIMULATIONS = [*CONTROL, (SCHEDULER, {"HEADRACE_SIM_SCHEDULES": "100000000"}, 0.5),
               (CORE, {"HEADRACE_SIM_STEPS": "100000000000"}, 1)]
NEEDED = 0.95


def simulate(program, number, simulation, seconds):
    """What ended it: '' when it passed, None when it had no more time."""
    name, settings, share = simulation
    environment = {**os.environ, **settings}
    if number is not None:
        environment["HEADRACE_SEEDED_BUG"] = str(number)
    try:
        run = subprocess.run([program, f"--gtest_filter={name}", "--gtest_fail_fast"], env=environment,
                             capture_output=True, text=True, timeout=max(1, share * seconds))
    except subprocess.TimeoutExpired:
        return None
    return "" if run.returncode == 0 else reason_of(run.stdout + run.stderr)


def reason_of(text):
    """The first line that says what was wrong, in short."""
    for pattern in (r"check failed:? .*", r"CHECK.*", r"(?<=Failure\n).*(?:\n.*){0,5}", r".*what\(\):.*", r".*terminate.*"):
        found = re.search(pattern, text)
        if found:
            line = " ".join(found.group().split()).split(" Google Test trace:")[0]
            for phrase in ("Value of: sound.ok() Actual: false Expected: true ", "Expected equality of these values: "):
                line = line.replace(phrase, "")
            return line.replace("|", "/")[:110].strip()
    return "it ended badly"


def hunt(program, number, limit):
    begin = time.monotonic()
    for simulation in SIMULATIONS:
        reason = simulate(program, number, simulation, limit - (time.monotonic() - begin))
        if reason:
            break
    took = time.monotonic() - begin
    return (names(simulation), took, reason) if reason else (None, took, "")


def names(simulation):
    return "CoreSim" if simulation[0] == CORE else "SchedulerSim"


def table(bugs, results):
    lines = ["# Seeded bugs of the engine", "",
             "Made by `make mutants`: each row is a bug that the engine gets on purpose",
             "(`tests/sim/mutants/engine_bugs.py`), the simulation that found it, after how many seconds, and what it said.", "",
             "| bug | in | found by | s | said |", "|---|---|---|---|---|"]
    for bug, (simulation, took, reason) in zip(bugs, results):
        lines.append(f"| {bug.name} | {bug.file} | {simulation or '**not found**'} | {took:.0f} | {reason} |")
    num_found = sum(simulation is not None for simulation, _, _ in results)
    return "\n".join([*lines, "", f"{num_found} of {len(bugs)} found.", ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table")
    parser.add_argument("bugs", nargs="*")
    given = parser.parse_intermixed_args()
    for simulation in CONTROL:
        reason = simulate(given.program, None, simulation, given.limit)
        if reason != "":
            sys.exit(f"without a bug {simulation[0]} does not pass: {reason}")
    wanted = [(number, bug) for number, bug in enumerate(engine_bugs.BUGS)
              if not given.bugs or any(words in bug.name for words in given.bugs)]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        hunts = [pool.submit(hunt, given.program, number, given.limit) for number, _ in wanted]
        for (number, bug), running in zip(wanted, hunts):
            simulation, took, reason = running.result()
            print(f"{number:3} {bug.name}: " + (f"{simulation} after {took:.1f} s: {reason}" if simulation
                                                else f"NOT FOUND in {took:.0f} s"), flush=True)
    results = [running.result() for running in hunts]
    num_found = sum(simulation is not None for simulation, _, _ in results)
    print(f"{num_found} of {len(results)} seeded bugs found")
    if given.table:
        with open(given.table, "w", encoding="utf-8") as file:
            file.write(table([bug for _, bug in wanted], results))
    sys.exit(0 if num_found >= NEEDED * len(results) else 1)


if __name__ == "__main__":
    main()
