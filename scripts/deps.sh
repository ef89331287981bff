#!/usr/bin/env bash
# Makes sure that what the build needs is there; installs what it can and says what is missing.
#
#     scripts/deps.sh             for the heap path: cargo and a C compiler
#     scripts/deps.sh rocksdb     for the RocksDB path as well: a C++ compiler, python3 and libclang
#     scripts/deps.sh browser     for the test that renders the report page: Chromium; without it that test says so
#     scripts/deps.sh can-rocksdb tells by its exit code whether the RocksDB path is possible; installs nothing
#
# As root on Debian or Ubuntu it installs by apt; set NO_APT=1 to forbid that. libclang comes as a wheel from PyPI
# into ~/.cache/lowtide where apt is no option. Everything else that is missing is only named.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/lowtide
missing=()

can_use_apt() {
  [ "$(id -u)" = 0 ] && [ -z "${NO_APT:-}" ] && command -v apt-get >/dev/null
}

# need COMMAND PACKAGE: installs PACKAGE by apt if COMMAND is missing, or notes it.
need() {
  command -v "$1" >/dev/null && return
  if can_use_apt; then
    apt_install "$2"
  else
    missing+=("$1 (Debian and Ubuntu: apt install $2)")
  fi
}

apt_install() {
  echo "deps.sh: installing $*" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 && return
  # A fresh machine has no package lists yet.
  apt-get update >/dev/null
  apt-get install -y --no-install-recommends "$@" >/dev/null
}

# The names that bindgen looks for; libclang-cpp, which graphics drivers bring along, is another library.
has_libclang() {
  [ -n "${LIBCLANG_PATH:-}" ] || [ -d "$cache/libclang/clang/native" ] && return
  local dir
  for dir in /usr/lib/llvm-*/lib /usr/lib/* /usr/lib64; do
    compgen -G "$dir/libclang.so*" >/dev/null && return
    compgen -G "$dir/libclang-[0-9]*.so*" >/dev/null && return
  done
  return 1
}

need_libclang() {
  has_libclang && return
  if can_use_apt && apt_install libclang-dev; then
    return
  fi
  echo "deps.sh: fetching libclang from PyPI into $cache/libclang" >&2
  if ! python3 -m pip install --quiet --target "$cache/libclang" libclang==18.1.1; then
    rm -rf "$cache/libclang"
    missing+=("libclang (Debian and Ubuntu: apt install libclang-dev)")
  fi
}

if [ "${1:-}" = can-rocksdb ]; then
  can_use_apt || { command -v c++ >/dev/null && command -v python3 >/dev/null; }
  exit
fi

if [ "${1:-}" = browser ]; then
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    { can_use_apt && apt_install chromium; } ||
    echo "deps.sh: no Chromium (Debian: apt install chromium): the report page will not be rendered" >&2
  exit 0
fi

if ! command -v cargo >/dev/null; then
  missing+=("cargo 1.95 or later (https://rustup.rs)")
fi
need cc build-essential
if [ "${1:-}" = rocksdb ]; then
  need c++ build-essential
  need python3 python3
  need_libclang
fi

if [ ${#missing[@]} -gt 0 ]; then
  echo "deps.sh: please install:" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi
