#!/bin/bash
# tools/build.sh PRESET [TARGET...]: configures (when needed) and builds a CMake preset into build/PRESET.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift
start=$SECONDS
mkdir -p "build/$preset"
log="build/$preset/configure.log"
cmake --preset "$preset" >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
ninja -C "build/$preset" -j "$(nproc)" "$@"
echo "build: $preset ready after $((SECONDS - start)) s"
