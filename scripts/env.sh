# Sourced before cargo: sets what the build needs to find.
#
#     . scripts/env.sh            nothing is needed for the heap path
#     . scripts/env.sh rocksdb    libclang, and the RocksDB library that is built once per machine
if [ "${1:-}" = rocksdb ]; then
  wheel=${XDG_CACHE_HOME:-$HOME/.cache}/lowtide/libclang/clang/native
  if [ -z "${LIBCLANG_PATH:-}" ] && [ -d "$wheel" ]; then
    export LIBCLANG_PATH=$wheel
    # The wheel has no headers of its own; those of the C compiler do.
    BINDGEN_EXTRA_CLANG_ARGS="-I$(cc -print-file-name=include)"
    export BINDGEN_EXTRA_CLANG_ARGS
  fi
  unset wheel
  rocksdb_env=$(scripts/build-rocksdb.sh) || return 1
  eval "$rocksdb_env"
  unset rocksdb_env
fi
