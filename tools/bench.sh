#!/bin/bash
# tools/bench.sh [OPTION...]: runs every benchmark program of the release build, one after the other.
# Options go to each program; results are rows on standard output and in build/results/bench-NAME.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/results
num_run=0
for program in build/release/bin/bench_*; do
  [ -x "$program" ] || continue
  num_run=$((num_run + 1))
  echo "== $(basename "$program") at $(git rev-parse --short HEAD)"
  "$program" "$@" | tee "build/results/$(basename "$program").log"
done
[ "$num_run" -gt 0 ] || { echo "no benchmark program was built" >&2; exit 1; }
