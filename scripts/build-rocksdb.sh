#!/usr/bin/env bash
# Builds librocksdb.a once from the sources inside the binding's -sys crate, outside the checkout, and
# prints what cargo needs to find it:
#
#     eval "$(scripts/build-rocksdb.sh)"
#
# Why not leave it to cargo: the -sys crate compiles 340 files one by one, which takes half an hour of
# CPU time in every target directory and every profile. Most of that is parsing the same headers, so
# here they are joined into a few large units (as RocksDB's own Makefile can do): a sixth of the time,
# once per machine, compiler and release of the binding.
#
# Settings (environment): OPT (-O2), JOBS (number of processors), CHUNKS (10), NICE (0),
# LOWTIDE_ROCKSDB_CACHE (${XDG_CACHE_HOME:-~/.cache}/lowtide). Needs a C++20 compiler and python3;
# each compiler process takes up to 1.3 GB.
set -euo pipefail
cd "$(dirname "$0")/.."

CXX=${CXX:-c++} OPT=${OPT:--O2} JOBS=${JOBS:-$(nproc)} CHUNKS=${CHUNKS:-10} NICE=${NICE:-0}
cache=${LOWTIDE_ROCKSDB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lowtide}

host=$(rustc -vV | sed -n 's/^host: //p')
read -r src version zstd lz4 < <(
  cargo metadata --format-version 1 --locked --filter-platform "$host" --features rocksdb | python3 -c '
import json, os, sys
packages = {p["name"]: p for p in json.load(sys.stdin)["packages"]}
folder = lambda name: os.path.dirname(packages[name]["manifest_path"])
sys_crate = "rust-librocksdb-sys"
print(folder(sys_crate), packages[sys_crate]["version"], folder("zstd-sys"), folder("lz4-sys"))')

# Run-time type information stays on: the binding compiles its own small C++ file against this
# archive and derives classes from RocksDB's.
flags=(-std=c++20 -w -include cstdint -ffunction-sections -fdata-sections -fPIC -fno-builtin-memcmp
  -DNDEBUG=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DZSTD=1 -DLZ4=1
  -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX
  -I rocksdb/include -I rocksdb -I . -I "$zstd/zstd/lib" -I "$lz4/liblz4/lib")
case $(uname -s) in
  Linux) flags+=(-DOS_LINUX -DROCKSDB_SCHED_GETCPU_PRESENT -DROCKSDB_AUXV_GETAUXVAL_PRESENT
    -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT) ;;
  *) echo "build-rocksdb.sh: only Linux is supported; cargo builds RocksDB itself elsewhere" >&2; exit 1 ;;
esac
case $(uname -m) in
  x86_64) flags+=(-msse4.2 -mpclmul) ;;
  aarch64) flags+=(-march=armv8-a+crc+crypto) ;;
esac

key=$(printf '%s\n' "$version" "$($CXX --version | head -1)" "$OPT" "${flags[*]}" "$(uname -m)" | sha256sum | cut -c1-16)
out=$cache/rocksdb-$version-$key
if [ ! -f "$out/librocksdb.a" ]; then
  mkdir -p "$cache"
  # One build at a time on a machine: a second caller waits and then finds the library.
  exec 9>"$cache/rocksdb.lock"
  flock 9
fi
if [ ! -f "$out/librocksdb.a" ]; then
  echo "building RocksDB $version with $JOBS processes (once; about 500 CPU seconds)" >&2
  work=$(mktemp -d "${TMPDIR:-/tmp}/lowtide-rocksdb.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 - "$src" "$work" "$CHUNKS" <<'PY'
import os, sys
src, work, chunks = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(f"{src}/rocksdb_lib_sources.txt") as listing:
    files = [line.strip() for line in listing]
files = [f for f in files if f and f != "util/build_version.cc"]
# Every file costs its own bytes and about as much again for the headers that only it draws in.
cost = [os.path.getsize(f"{src}/rocksdb/{f}") + 15000 for f in files]
units, unit, done = [], [], 0
for f, c in zip(files, cost):
    unit.append(f)
    done += c
    if done >= sum(cost) * (len(units) + 1) / chunks and len(units) < chunks - 1:
        units.append(unit)
        unit = []
units.append(unit)
for i, unit in enumerate(units):
    with open(f"{work}/unit{i:02}.cc", "w") as out:
        out.writelines(f'#include "rocksdb/{f}"\n' for f in unit)
PY
  cp "$src/build_version.cc" "$work/version.cc"
  (cd "$src" && printf '%s\0' "$work"/*.cc |
    nice -n "$NICE" xargs -0 -P "$JOBS" -I{} "$CXX" "$OPT" "${flags[@]}" -c {} -o {}.o) >&2
  # Written aside and renamed, so that an interrupted build is never taken for a finished one.
  mkdir -p "$out.part"
  rm -f "$out.part/librocksdb.a"
  ar crs "$out.part/librocksdb.a" "$work"/*.o
  rm -rf "$out"
  mv "$out.part" "$out"
fi
printf 'export ROCKSDB_LIB_DIR=%q ROCKSDB_STATIC=1 ROCKSDB_INCLUDE_DIR=%q\n' "$out" "$src/rocksdb/include"
