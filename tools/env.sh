# Sourced by every shell of the Makefile (BASH_ENV): puts the tools that setup.sh chose first on PATH.
if [ -z "${HEADRACE_ORIGINAL_PATH:-}" ]; then
  headrace_list="$(dirname "${BASH_SOURCE[0]}")/../build/setup/path"
  if [ -f "$headrace_list" ]; then
    export HEADRACE_ORIGINAL_PATH=$PATH
    while IFS= read -r headrace_folder; do
      PATH="$headrace_folder:$PATH"
    done <"$headrace_list"
    export PATH
  fi
  unset headrace_list headrace_folder
fi
