#!/bin/bash
# tools/bench.sh [MODEL...]: the kernels beside the machine's limits, then prefill and decode of each MODEL
# (default: smollm2:135m). Results are rows on standard output and in build/results/bench-*.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/results
bin=build/release/bin

echo "== kernels at $(git rev-parse --short HEAD)"
"$bin/bench_kernels" | tee build/results/bench-kernels.log
[ $# -gt 0 ] || set -- smollm2:135m
for model in "$@"; do
  path=$model
  if [ ! -e "$model" ]; then
    HEADRACE_HOME="$PWD/build" "$bin/headrace" pull "$model"
    path="build/models/${model//:/-}.gguf"
  fi
  echo "== $model at $(git rev-parse --short HEAD)"
  "$bin/bench_step" "$path" | tee "build/results/bench-step-$(basename "$path").log"
done
