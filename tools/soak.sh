#!/bin/bash
# tools/soak.sh [SECONDS]: the program under the thread sanitizer and under load: agents' turns, many clients and prefixes,
# requests at random times, memory for half of them, a disk behind it. Half of the time with a load from `headrace bench serve`
# of each kind. Fails on a report of the sanitizer, on a request that failed, or if the server does not end well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-600}
tools/setup.sh sanitize
tools/build.sh tsan headrace
tools/build.sh release headrace
folder=$(mktemp -d build/soak.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
PYTHONPATH=tests/http .venv/bin/python -c "
import pathlib, tiny_model
tiny_model.write(pathlib.Path('$folder/tiny'), context=4096)"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:exitcode=66:suppressions=$PWD/tools/tsan.supp:external_symbolizer_path=/usr/bin/llvm-symbolizer-19"
build/tsan/bin/headrace serve "$folder/tiny" --port 0 --quiet --context 4096 --kv-memory 1M --max-sequences 16 \
  --kv-ram 4M --kv-disk "$folder/store" >"$folder/address" 2>"$folder/log" &
server=$!
for _ in $(seq 600); do  # until it stands there
  address=$(grep -oE 'http://[^ ]+' "$folder/address" || true)
  [ -z "$address" ] || break
  sleep 0.2
done
[ -n "$address" ] || { cat "$folder/log"; echo "the server did not start"; exit 1; }

# load ARGUMENT...: fails if a request failed for another reason than that the server was full.
load() {
  build/release/bin/headrace bench serve "$address" --duration "$((seconds / 2))" --json "$@" >"$folder/load.json"
  .venv/bin/python - "$folder/load.json" <<'PY'
import json, sys
for stage in json.load(open(sys.argv[1]))["stages"]:
    print({name: stage[name] for name in ("load", "requests", "answered", "refused", "failed")}, flush=True)
    if stage["failed"] or not stage["answered"]:
        sys.exit(f"requests failed: {stage.get('first_error')}")
PY
}
# The tokenizer is of single bytes: a word is some five tokens.
load --load closed:24 --profile agent --prefix-tokens 60 --prompt-tokens lognormal:20,0.5 --answer-tokens 40 --turns 4
load --load poisson:20 --profile prefix --prefix-tokens 60 --prompt-tokens 20 --answer-tokens lognormal:30,0.5
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
grep -A40 'WARNING: ThreadSanitizer' "$folder/log" && status=66
[ "$status" = 0 ] || { tail -n 20 "$folder/log"; echo "the server ended with status $status"; exit 1; }
echo "soak: $seconds s under the thread sanitizer, nothing found"
