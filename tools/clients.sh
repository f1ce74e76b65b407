#!/bin/bash
# tools/clients.sh [ENVIRONMENT...]: the wide tests of clients (tests/clients), in environments of their own below
# build/clients; without names all of them.
#
# Many packages from PyPI and npm: not part of `make test`, whose own tests hold the core ones (tests/http).
# Packages that do not go together have an environment each. Ends with "N passed, M failed, K skipped"; fails if a test
# failed or none ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=build/clients
results=build/results
total_passed=0 total_failed=0 total_skipped=0

# environment: its tests.
declare -A checks=(
  [frameworks]="check_openai.py check_frameworks.py check_node.py check_codex.py check_prometheus.py"
  [llama-index]="check_llama_index.py"
  [harnesses]="check_lm_eval.py check_guidellm.py"
)

# install NAME FILE COMMAND...: runs the command unless it did for this file.
install() {
  local stamp="$folder/$1.stamp" key
  key=$(sha256sum <"$2")
  shift 2
  [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0
  "$@"
  echo "$key" >"$stamp"
}

install_python() {
  .venv/bin/python -m venv --clear "$folder/$1"
  "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
    -r "tests/clients/requirements-$1.txt"
}

install_node() { (cd tests/clients/node && npm ci --no-audit --no-fund --loglevel=error); }

# Debian's package, unpacked and not installed: nothing is started.
install_prometheus() {
  command -v prometheus >/dev/null && return 0
  (cd "$folder" && rm -rf prometheus* && apt-get -q download prometheus && dpkg -x prometheus_*.deb prometheus) \
    >"$results/clients-prometheus.log" 2>&1 || echo "no Prometheus here: see $results/clients-prometheus.log"
}

# number LOG PATTERN: the number in the last match of PATTERN in LOG, or 0.
number() { { grep -oE "$2" "$1" || true; } | tail -n 1 | grep -oE '[0-9]+' || echo 0; }

tally() {
  local log=$1 status=$2 failed
  failed=$(($(number "$log" '[0-9]+ failed') + $(number "$log" '[0-9]+ errors?\b')))
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
  total_passed=$((total_passed + $(number "$log" '[0-9]+ passed') + $(number "$log" '[0-9]+ subtests passed')))
  total_failed=$((total_failed + failed))
  total_skipped=$((total_skipped + $(number "$log" '[0-9]+ skipped')))
}

# check ENVIRONMENT: its tests, with its packages.
check() {
  local name=$1 log="$results/clients-$1.log" status=0 files start=$SECONDS
  read -ra files <<<"${checks[$name]}"
  install "$name" "tests/clients/requirements-$name.txt" install_python "$name"
  echo "clients $name: packages ready after $((SECONDS - start)) s"
  HEADRACE_BINARY="$PWD/build/release/bin/headrace" PATH="$PWD/$folder/prometheus/usr/bin:$PATH" \
    "$folder/$name/bin/python" -m pytest -q -rs -p no:cacheprovider --durations=5 -o 'python_files=check_*.py' \
    "${files[@]/#/tests/clients/}" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || tail -n 200 "$log"
  { grep -E '^SKIPPED' "$log" || true; }
  tally "$log" "$status"
  echo "clients $name: $(tail -n 1 "$log")"
}

mkdir -p "$folder" "$results"
tools/setup.sh test
. tools/env.sh  # what it chose was not on PATH when this shell began in a clean clone
tools/build.sh release headrace
install node tests/clients/node/package-lock.json install_node
install prometheus tools/clients.sh install_prometheus
[ $# -gt 0 ] || set -- frameworks llama-index harnesses
for name in "$@"; do check "$name"; done
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[ "$total_failed" = 0 ] && [ "$total_passed" -gt 0 ]
