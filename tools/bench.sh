#!/bin/bash
# tools/bench.sh [--peers] [MODEL...]: the limits of this machine, the kernels beside them, then prefill, decode and
# batches of each MODEL (default: smollm2:135m; a name to pull, or a file) in both activation arithmetics.
# With --peers then also llama.cpp and OpenVINO GenAI on the same weights, interleaved, in one run; the first time
# that builds llama-cpp-python for this machine (about ten minutes on two cores) in build/peers.
# HEADRACE_PEERS names another Python environment that has the packages; HEADRACE_GOLDEN a folder of recorded results.
# Results are rows on standard output and in build/results/bench-*.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/results
bin=build/release/bin
peer_packages=(llama-cpp-python==0.3.36 openvino-genai==2026.4.1.0)

with_peers=no
if [ "${1:-}" = --peers ]; then
  with_peers=yes
  shift
fi
[ $# -gt 0 ] || set -- smollm2:135m

commit=$(git rev-parse --short HEAD)
echo "== machine"
"$bin/headrace" bench machine | tee build/results/bench-machine.log
echo "== kernels at $commit"
"$bin/bench_kernels" | tee build/results/bench-kernels.log
paths=()
for model in "$@"; do
  path=$model
  if [ ! -e "$model" ]; then
    HEADRACE_HOME="$PWD/build" "$bin/headrace" pull "$model"
    path="build/models/${model//:/-}.gguf"
  fi
  paths+=("$path")
  for activations in exact fast; do
    echo "== $model at $commit, activations $activations"
    "$bin/headrace" bench step "$path" --activations $activations |
      tee "build/results/bench-step-$(basename "$path")-$activations.log"
  done
done

if [ $with_peers = yes ]; then
  venv=${HEADRACE_PEERS:-build/peers}
  if [ ! -x "$venv/bin/python" ]; then
    rm -rf build/peers.new
    .venv/bin/python -m venv build/peers.new
    # Scripts of an environment hold its path, so that only modules are used after the move.
    CMAKE_ARGS="-DGGML_NATIVE=ON" build/peers.new/bin/python -m pip install -q "${peer_packages[@]}"
    mv build/peers.new "$venv"
  fi
  echo "== peers at $commit"
  golden=()
  [ -z "${HEADRACE_GOLDEN:-}" ] || golden=(--golden "$HEADRACE_GOLDEN")
  .venv/bin/python bench/peers.py --headrace "$bin/headrace" --venv "$venv" "${golden[@]}" "${paths[@]}" |
    tee build/results/bench-peers.log
fi
