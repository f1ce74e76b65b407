#!/bin/bash
# tools/clients.sh: the wide tests of clients (tests/clients) in environments of their own under build/clients.
#
# Many packages from PyPI and npm: not part of `make test`, whose own tests hold the core ones (tests/http).
# Packages that do not go together have an environment each. Fails if a test failed or none ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=build/clients
results=build/results
failed=0

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
  "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    -r "tests/clients/requirements-$1.txt"
}

install_node() { (cd tests/clients/node && npm ci --no-audit --no-fund --loglevel=error); }

# check ENVIRONMENT FILE...: the tests in these files, with the packages of the environment.
check() {
  local name=$1 log="$results/clients-$1.log" status=0
  shift
  install "$name" "tests/clients/requirements-$name.txt" install_python "$name"
  HEADRACE_BINARY="$PWD/build/release/bin/headrace" "$folder/$name/bin/python" -m pytest -q -rs -p no:cacheprovider \
    -o 'python_files=check_*.py' "${@/#/tests/clients/}" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || { tail -n 200 "$log"; failed=1; }
  { grep -E '^SKIPPED' "$log" || true; }
  echo "clients $name: $(tail -n 1 "$log")"
}

mkdir -p "$folder" "$results"
tools/setup.sh test
tools/build.sh release headrace
install node tests/clients/node/package-lock.json install_node
check frameworks check_openai.py check_frameworks.py check_node.py
check harnesses check_llama_index.py check_lm_eval.py
check guidellm check_guidellm.py
exit $failed
