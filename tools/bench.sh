#!/bin/bash
# tools/bench.sh [--peers] [MODEL...]: the kernels beside the machine's limits, then prefill and decode of each
# MODEL (default: smollm2:135m). With --peers also llama.cpp on the same weights, interleaved, in one run; the
# first time that builds llama-cpp-python for this machine (about ten minutes on two cores).
# Results are rows on standard output and in build/results/bench-*.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/results
bin=build/release/bin
peer_package=llama-cpp-python==0.3.36

with_peers=no
if [ "${1:-}" = --peers ]; then
  with_peers=yes
  shift
fi
[ $# -gt 0 ] || set -- smollm2:135m

echo "== kernels at $(git rev-parse --short HEAD)"
"$bin/bench_kernels" | tee build/results/bench-kernels.log
paths=()
for model in "$@"; do
  path=$model
  if [ ! -e "$model" ]; then
    HEADRACE_HOME="$PWD/build" "$bin/headrace" pull "$model"
    path="build/models/${model//:/-}.gguf"
  fi
  paths+=("$path")
  echo "== $model at $(git rev-parse --short HEAD)"
  "$bin/bench_step" "$path" | tee "build/results/bench-step-$(basename "$path").log"
done

if [ $with_peers = yes ]; then
  if [ ! -x build/peers/bin/python ]; then
    rm -rf build/peers.new
    .venv/bin/python -m venv build/peers.new
    CMAKE_ARGS="-DGGML_NATIVE=ON" build/peers.new/bin/python -m pip install -q "$peer_package"
    mv build/peers.new build/peers
  fi
  echo "== peers at $(git rev-parse --short HEAD)"
  build/peers/bin/python bench/peers.py --bench "$bin/bench_step" "${paths[@]}" | tee build/results/bench-peers.log
fi
