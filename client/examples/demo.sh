#!/usr/bin/env bash
# What ./quickstart demo shows, on a finished build: a daemon of its own in a temporary folder, the tensor-parallel
# language model over it, the daemon's own account of it. Leaves nothing running and nothing behind.
#   client/examples/demo.sh [build folder]
set -euo pipefail
build=$(cd "${1:-build/release}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
daemon=
stop() {
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then
    kill -TERM "$daemon"
    for _ in $(seq 100); do kill -0 "$daemon" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap stop EXIT
fail() { printf 'demo: %s\n' "$*" >&2; [ ! -s "$work/log" ] || { echo "the daemon's last lines:" >&2; tail -n 20 "$work/log" >&2; }; exit 1; }
heading() { printf '\n\033[1m%s\033[0m\n' "$*"; }

export ARCOMM_RUNTIME_DIR=$work/run ARCOMM_STATE_DIR=$work/state
arctl=$build/client/arctl/arctl
mkdir -p "$ARCOMM_RUNTIME_DIR" "$ARCOMM_STATE_DIR"
# On the host, also where there are GPUs: what is shown is the same everywhere.
"$build/daemon/arcommd" --set device.backend=host --set metrics.listen="unix:$work/run/metrics.sock" >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
  "$arctl" status >/dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || fail "arcommd ended while starting"
  sleep 0.1
done
"$arctl" status >/dev/null 2>&1 || fail "arcommd did not answer within 10 s"

heading "1. A language model, trained here and served by 2 processes that share its layers through arcommd"
timeout 300 "$build/client/examples/tensor_parallel_lm" --ranks 2 || fail "the example failed"
heading "2. What the daemon did for it (arctl status)"
timeout 10 "$arctl" status || fail "arctl status failed"
heading "3. A self-test of this node (arctl check)"
timeout 60 "$arctl" check || fail "arctl check failed"
heading "4. AllReduce from 4 processes (arctl bench)"
timeout 60 "$arctl" bench -r 4 -b 1K -e 4M -f 16 -n 20 -w 5 || fail "arctl bench failed"
printf '\nAll of it ran in %s, which is gone when this script ends.\n' "$work"
