#!/usr/bin/env bash
# Measures lowtide against its bars and beside other engines, in one go, and writes benches/RESULTS.md:
#
#     benches/run.sh                              everything; an hour on two cores
#     LARGE=2000000 ROUNDS=3 REPS=1 benches/run.sh   a quick look
#     BARS="access encode" ENGINES= benches/run.sh   some rows only
#
# Environment, each with its default:
#   SMALL=1000000 LARGE=10000000   entries of the two sizes
#   ROUNDS=7                       rounds in which the two sides of a bar take turns
#   REPS=3                         repetitions of the peer suites
#   BARS="access chained many freeze beside slowest encode restore memory"
#   ENGINES="lowtide-heap lowtide-rocksdb hashbrown imbl rocksdb"   those with rocksdb only where it can be built
#   FLINK_PEER=DIR                 harness of Flink's own backends: its run.sh and summarize.py; left out unless set
#   OUT=target/bars                where the lines of figures go; those of an earlier run are replaced
# Ends with 1 if a bar is missed that the programs of benches/limits do not miss as well. Ratios are taken within one
# run; on a machine that others use they still spread.
set -euo pipefail
cd "$(dirname "$0")/.."

SMALL=${SMALL:-1000000} LARGE=${LARGE:-10000000} ROUNDS=${ROUNDS:-7} REPS=${REPS:-3}
BARS=${BARS-access chained many freeze beside slowest encode restore memory}
ENGINES=${ENGINES-lowtide-heap lowtide-rocksdb hashbrown imbl rocksdb}
OUT=${OUT:-target/bars}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)

features=()
if scripts/deps.sh can-rocksdb; then
  scripts/deps.sh rocksdb
  # shellcheck source=../scripts/env.sh
  . scripts/env.sh rocksdb
  features=(--features rocksdb)
else
  ENGINES=$(tr ' ' '\n' <<<"$ENGINES" | grep -v rocksdb | tr '\n' ' ')
fi
cargo build --release --locked --manifest-path benches/peers/Cargo.toml "${features[@]}"
target=$(cargo metadata --format-version 1 --no-deps --locked --manifest-path benches/peers/Cargo.toml |
  sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/release

load() { cut -d' ' -f1-3 /proc/loadavg; }
begun=$(date -u +%FT%TZ) load_begun=$(load)

bars() { # row [options]
  "$target/bars" "$@" --rounds "$ROUNDS" >>"$OUT/bars.jsonl"
}
if [ -n "$BARS" ]; then : >"$OUT/bars.jsonl"; fi
for row in $BARS; do
  case $row in
    access | chained)
      bars "$row" --entries "$SMALL"
      bars "$row" --entries "$LARGE"
      ;;
    *) bars "$row" --entries "$LARGE" ;;
  esac
done

# The least that any such map does, beside the same other sides: what misses a bar there is at a limit here.
limit() { # program entries
  "$target/limit-$1" "$2" ${3:+"$ROUNDS"} >>"$OUT/bars.jsonl"
}
for row in $BARS; do
  case $row in
    access)
      limit access "$SMALL" rounds
      limit access "$LARGE" rounds
      ;;
    many | restore) limit "$row" "$LARGE" rounds ;;
    slowest) limit growth "$LARGE" ;;
  esac
done

# Flink first: its lines tell which labels put the others into the same tables.
beside=()
if [ -n "${FLINK_PEER:-}" ] && command -v java javac python3 >/dev/null; then
  rm -f "$OUT/flink.jsonl"
  OUT=$OUT/flink.jsonl SUITE=micro BACKENDS="heap rocksdb-inc" VALUES=long REPS=$REPS "$FLINK_PEER/run.sh" >"$OUT/flink.log"
  OUT=$OUT/flink.jsonl SUITE=rounds BACKENDS="heap heap-snappy rocksdb-inc" VALUES=long UPCTS=1 REPS=$REPS \
    "$FLINK_PEER/run.sh" >>"$OUT/flink.log"
  # Compactions come every 4 to 19 checkpoints.
  OUT=$OUT/flink.jsonl SUITE=rounds BACKENDS=rocksdb-inc VALUES=long UPCTS=10 ROUNDS=40 REPS=1 \
    "$FLINK_PEER/run.sh" >>"$OUT/flink.log"
  beside=("$OUT/flink.jsonl")
fi
if [ -n "$ENGINES" ]; then : >"$OUT/engines.jsonl"; fi
for engine in $ENGINES; do
  "$target/engines" "$engine" "suite=micro,n=$SMALL,reps=$REPS" "${beside[@]}" >>"$OUT/engines.jsonl"
  "$target/engines" "$engine" "n=$SMALL,upct=1,reps=$REPS" "${beside[@]}" >>"$OUT/engines.jsonl"
  "$target/engines" "$engine" "n=$SMALL,upct=10,rounds=40,reps=1" "${beside[@]}" >>"$OUT/engines.jsonl"
done
if [ ${#beside[@]} -gt 0 ]; then python3 "$FLINK_PEER/summarize.py" "${beside[@]}" "$OUT/engines.jsonl" >"$OUT/summary.md" || true; fi

changes=$(git status --porcelain --untracked-files=no | wc -l)
cat >"$OUT/facts.md" <<FACTS
# Results

Written by \`benches/run.sh\`; the last section is written by people. Ratios are of medians within this run; times are
hints.

| | |
|---|---|
| commit | $(git rev-parse --short HEAD)$([ "$changes" = 0 ] || echo ", with $changes files changed") |
| machine | $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f", $2 / 1048576}' /proc/meminfo) GiB |
| system | Linux $(uname -r), $(ldd --version | head -1 | sed 's/^ldd //'), $(rustc --version) |
| transparent huge pages | $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null || echo unknown) |
| load average | $load_begun at $begun, $(load) at $(date -u +%FT%TZ) |
| command | \`SMALL=$SMALL LARGE=$LARGE ROUNDS=$ROUNDS REPS=$REPS BARS="$BARS" ENGINES="$ENGINES" ${FLINK_PEER:+FLINK_PEER=… }benches/run.sh\` |
FACTS
"$target/report" benches/RESULTS.md "$OUT/facts.md" "$OUT/bars.jsonl" "$OUT/engines.jsonl" "$OUT/flink.jsonl"
