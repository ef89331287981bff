#!/usr/bin/env bash
# Runs a command beside a real S3-compatible server, which it installs if need be, starts, and stops afterwards.
#
#     scripts/s3.sh cargo test --features s3 --test s3
#
# The command finds the server by LOWTIDE_S3_ENDPOINT and LOWTIDE_S3_BUCKET. Where the server cannot be installed or
# started, a loud line says so and the command is run without; unless S3=1 asks for the server, that is no failure.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/lowtide
venv=$cache/s3
version=1.5.33

# without REASON: goes on without a server, and nobody may overlook it.
without() {
  echo "s3.sh: NOT TESTED against an S3 server: $1" >&2
  [ "${S3:-0}" = 1 ] && exit 1
  "${command[@]}"
  exit
}

command=("$@")

if ! [ -x "$venv/bin/ministack" ]; then
  command -v python3 >/dev/null || without "python3 is missing"
  mkdir -p "$cache"
  python3 -m venv "$venv" >&2 || without "python3 cannot make a virtual environment"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "ministack==$version" >&2 ||
    without "ministack cannot be installed from PyPI"
fi

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
endpoint=http://127.0.0.1:$port
# Its own default is to listen to the whole network.
BIND_HOST=127.0.0.1 GATEWAY_PORT=$port EDGE_PORT=$port PORT=$port "$venv/bin/ministack" >"$cache/s3.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT

bucket=lowtide-test
# The server does not verify signatures, but wants to see one.
signature='AWS4-HMAC-SHA256 Credential=test/20261129/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x'
make_bucket() {
  python3 - "$endpoint/$bucket" "$signature" 2>/dev/null <<'PY'
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], method="PUT", headers={"Authorization": sys.argv[2]})
urllib.request.urlopen(request, timeout=10)
PY
}
for _ in $(seq 300); do
  kill -0 "$server" 2>/dev/null || without "the server ended, see $cache/s3.log"
  if make_bucket; then
    LOWTIDE_S3_ENDPOINT=$endpoint LOWTIDE_S3_BUCKET=$bucket "${command[@]}"
    exit
  fi
  sleep 0.2
done
without "the server does not answer, see $cache/s3.log"
