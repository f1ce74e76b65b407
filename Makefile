# The whole interface of a developer's day. Each target installs what it needs first (tools/setup.sh).
#
#   make run     release build, default model, page and API on http://127.0.0.1:8080
#   make test    every suite on the release build; tests that passed and are unchanged since only with FRESH=1
#   make check   format, clang-tidy, folder order, budgets, sealed units
#   make bench   benchmarks, each figure beside the machine's limit; ARGS="[--peers] [MODEL...]" chooses the
#                models, and puts llama.cpp and OpenVINO GenAI beside us on the same weights
#   make fuzz    each fuzz target for FUZZ_SECONDS (60)
#   make sim     simulations of engine and sessions without end, seeds printed; ARGS="--seed N" does one again
#   make mutants the same on an engine with seeded bugs, one at a time; writes docs/seeded-bugs.md
#   make test-asan, test-tsan    suites under sanitizers;  make soak: ten minutes of load under the thread sanitizer
#   make test-proxies   the server behind nginx and HAProxy, which it installs
#   make test-clients            many clients from PyPI and npm, as they come, against the server
#   make wheel   the Python package as build/dist/headrace-*.whl, for pip
#   make test-wheel    that in a fresh environment, with lm-eval and Ray Serve from PyPI
#   make build   release build only;  make clean  removes build/ but for fetched models

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export BASH_ENV := $(CURDIR)/tools/env.sh

FUZZ_SECONDS ?= 60
MODEL ?= smollm2:135m
HOST ?= 127.0.0.1
PORT ?= 8080
ARGS ?=
export FUZZ_SECONDS

export HEADRACE_PYTHON ?= $(CURDIR)/.venv/bin/python

.PHONY: run build test sim mutants test-asan test-tsan soak test-clients test-proxies test-wheel wheel check bench fuzz format clean
.NOTPARALLEL:

run:
	tools/setup.sh build
	tools/build.sh release headrace
	build/release/bin/headrace pull $(MODEL)
	build/release/bin/headrace serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

build:
	tools/setup.sh build
	tools/build.sh release

test:
	tools/suites.sh release

sim:
	tools/setup.sh build
	tools/build.sh release test_core_sim test_scheduler_sim
	python3 tests/sim/run.py build/release/bin $(ARGS)

mutants:
	tools/setup.sh build
	tools/build.sh release test_engine_mutants
	python3 tests/sim/mutants/hunt.py build/release/bin/test_engine_mutants --table docs/seeded-bugs.md $(ARGS)

test-asan:
	tools/suites.sh asan

test-tsan:
	tools/suites.sh tsan

soak:
	tools/soak.sh $(ARGS)

test-proxies:
	tools/setup.sh proxies
	tools/build.sh release headrace
	HEADRACE_BINARY=$(CURDIR)/build/release/bin/headrace .venv/bin/python -m pytest -q -rs -p no:cacheprovider \
	  tests/http/test_proxies.py

test-clients:
	tools/clients.sh

wheel:
	tools/wheel.sh build

test-wheel:
	tools/wheel.sh test

fuzz:
	tools/suites.sh fuzz

check:
	tools/check.sh

bench: build
	tools/build.sh release benchmarks
	tools/bench.sh $(ARGS)

format:
	tools/setup.sh check
	tools/check.sh --fix

clean:
	find build -mindepth 1 -maxdepth 1 ! -name models ! -name setup -exec rm -rf {} +
