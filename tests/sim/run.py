"""Simulations without end: make sim [ARGS="--seed N | --seconds S"].

Prints the seeds that ran. The first failure ends it, with what failed and the seed that does it again.
"""

import argparse
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import time

PROGRAMS = [("test_core_sim", "Parts/CoreSimPart.EveryPromiseIsKept/0", "HEADRACE_SIM_STEPS", 400_000),
            ("test_scheduler_sim", "SchedulerSim.EveryScheduleKeepsItsPromises", "HEADRACE_SIM_SCHEDULES", 1_000)]


def simulate(folder, program, seed, whole=True):
    """The output of a run that failed, else None. whole: many worlds from that seed on, else this one."""
    name, test, variable, count = program
    environment = {**os.environ, "HEADRACE_SIM_SEED": str(seed), variable: str(count if whole else 1)}
    run = subprocess.run([os.path.join(folder, name), f"--gtest_filter={test}"], env=environment,
                         capture_output=True, text=True)
    return None if run.returncode == 0 else run.stdout + run.stderr


def tell(program, seed, output):
    print(output)
    seeds = re.findall(r"\bseed (\d+)", output)
    sys.exit(f'{program[0]} failed; again with: make sim ARGS="--seed {seeds[-1] if seeds else seed}"')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="of the programs")
    parser.add_argument("--seed", type=int, help="only the worlds of this seed")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    if given.seed is not None:
        for program in PROGRAMS:
            output = simulate(given.folder, program, given.seed, whole=False)
            if output is not None:
                tell(program, given.seed, output)
        return print(f"seed {given.seed} keeps all promises")
    end = time.monotonic() + given.seconds
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        while time.monotonic() < end:
            jobs = [(PROGRAMS[i % len(PROGRAMS)], random.SystemRandom().getrandbits(48)) for i in range(os.cpu_count())]
            runs = [pool.submit(simulate, given.folder, program, seed) for program, seed in jobs]
            for (program, seed), run in zip(jobs, runs):
                output = run.result()
                if output is not None:
                    tell(program, seed, output)
                print(f"{program[0]}: {program[3]} {program[2].rsplit('_', 1)[1].lower()} from seed {seed}", flush=True)


if __name__ == "__main__":
    main()
