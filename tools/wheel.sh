#!/bin/bash
# tools/wheel.sh build: the Python package as a wheel, into build/dist.
# tools/wheel.sh test:  builds it, installs it into fresh environments under build/wheel-tests and runs python/tests there:
#                       the core without any other package but pytest, then with lm-eval and with Ray Serve.
#
# Not part of `make test`: the libraries are compiled a second time, as code of a shared library. Fails if a test failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dist=build/dist
folder=build/wheel-tests
results=build/results
failed=0

build_wheel() {
  local log=build/wheel.log
  tools/setup.sh wheel
  mkdir -p $dist
  rm -f $dist/headrace-*.whl
  PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir $dist ./python >$log 2>&1 || { tail -n 60 $log >&2; exit 1; }
  echo "wheel: $(ls $dist/headrace-*.whl)"
}

# environment NAME LIST: one with the wheel and the packages of the list; made anew unless these are unchanged.
environment() {
  local stamp="$folder/$1.stamp" list=$2 key
  key=$(sha256sum <"$list")
  if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
    .venv/bin/python -m venv --clear "$folder/$1"
    "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$list"
    echo "$key" >"$stamp"
  fi
  "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
    $dist/headrace-*.whl
}

# check NAME LIST FILE...: these tests in that environment, where the installed package is what Python finds.
check() {
  local name=$1 log="$results/wheel-$1.log" status=0
  environment "$name" "$2"
  shift 2
  HEADRACE_BINARY="$PWD/build/release/bin/headrace" HEADRACE_TEST_MODELS="${HEADRACE_TEST_MODELS:-$PWD/build/models}" \
    "$folder/$name/bin/python" -P -m pytest -q -rs -p no:cacheprovider "${@/#/python/tests/}" >"$log" 2>&1 </dev/null ||
    status=$?
  [ "$status" = 0 ] || { tail -n 200 "$log"; failed=1; }
  { grep -E '^SKIPPED' "$log" || true; }
  echo "wheel $name: $(tail -n 1 "$log")"
}

case ${1:-build} in
  build) build_wheel ;;
  test)
    mkdir -p "$folder" "$results"
    build_wheel
    tools/setup.sh test
    tools/build.sh release headrace golden_data
    check core python/tests/requirements-core.txt test_generate.py test_life.py test_same_bits.py
    check lm_eval tests/clients/requirements-harnesses.txt test_lm_eval.py
    check ray python/tests/requirements-ray.txt test_ray_serve.py
    exit $failed
    ;;
  *) echo "usage: tools/wheel.sh build|test" >&2; exit 2 ;;
esac
