#!/usr/bin/env bash
# Explores the unsafe parts of the heap and the hand-over between owner and writers, before a change of them is merged:
#
#   loom        every interleaving of owner and readers over the shipped code
#   miri        owner and writers on 20 seeds and the allocator of pages: no undefined behaviour      (nightly, miri)
#   address     all tests of the heap under AddressSanitizer                                           (nightly)
#   thread      owner and writers under ThreadSanitizer, with a standard library built for it          (nightly, rust-src)
#
#     scripts/explore.sh [loom] [miri] [address] [thread]      all of them unless some are named
#
# What the machine has no tools for is left out and said; the end is 1 if anything was found.
set -uo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
found=0

explore() { # name, tool there or not, command
  local name=$1 there=$2
  shift 2
  if ! "$there"; then
    echo "explore.sh: $name is left out, its tools are not installed (rustup +nightly, components miri and rust-src)" >&2
    return
  fi
  echo "explore.sh: $name"
  "$@" || { echo "explore.sh: $name found something" >&2; found=1; }
}

has_stable() { true; }
has_nightly() { cargo +nightly --version >/dev/null 2>&1; }
has_miri() { cargo +nightly miri --version >/dev/null 2>&1; }
has_std_source() { [ -d "$(rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ]; }

target=${CARGO_TARGET_DIR:-target}
[ $# -gt 0 ] || set -- loom miri address thread
for name in "$@"; do
  case $name in
    loom)
      explore loom has_stable cargo test --locked -p lowtide-heap --features loom --lib handover
      ;;
    miri)
      # Without isolation since tests ask for the time; parking_lot keeps pointers in integers. Without the debug builds'
      # brute-force checks, which take it several times as long.
      MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" CARGO_TARGET_DIR=$target/miri \
        explore miri has_miri cargo +nightly miri test --release --locked -p lowtide-heap --lib -- erased model::threads pages
      ;;
    address)
      RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$target/address \
        explore address has_nightly cargo +nightly test --locked --target "$host" -p lowtide-heap --lib
      ;;
    thread)
      RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$target/thread \
        explore thread has_std_source cargo +nightly test --locked -Zbuild-std --target "$host" -p lowtide-heap --lib model::threads
      ;;
    *)
      echo "explore.sh: there is no exploration $name" >&2
      exit 2
      ;;
  esac
done
exit $found
