#!/bin/bash
# tools/check.sh [--fix]: format, tidy rules, clang-tidy and sealed units; --fix only formats the sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/setup.sh check

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- 'src/*.cpp' 'src/*.h' \
  'tests/*.cpp' 'tests/*.h' 'bench/*.cpp' 'bench/*.h' 'python/*.cpp' 'python/*.h')
if [ "${1:-}" = --fix ]; then
  exec clang-format-19 -i "${sources[@]}"
fi

status=0
step() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then echo "check $name: passed, $((SECONDS - start)) s"; else
    echo "check $name: failed, $((SECONDS - start)) s"
    status=1
  fi
}

# Each source by itself, which is how clang-tidy names what it finds.
run_clang_tidy() {
  cmake --preset release -B build/alone -DHEADRACE_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
  printf '%s\n' "${sources[@]}" | grep -E '^(src|bench)/.*\.cpp$' | grep -vE '_test\.cpp$' |
    xargs -P "$(nproc)" -n 4 clang-tidy-19 --quiet -p build/alone 2>&1 |
    { grep -vE 'warnings? generated|^Suppressed|^Use -header-filter' || true; }
}

step format clang-format-19 --dry-run -Werror "${sources[@]}"
step build-clang tools/build.sh release all benchmarks
step build-g++ tools/build.sh gcc all benchmarks
step tidy python3 tests/tidy/tidy.py --build build/release
step clang-tidy run_clang_tidy
exit $status
