# Sourced by demo.sh and demo_gpus.sh, which set $build: an arcommd of its own in a temporary folder, gone with the script.
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

# start_daemon SECONDS SETTINGS...: serves within so long, if degraded, or the script ends.
start_daemon() {
  local seconds=$1
  shift
  "$build/daemon/arcommd" "$@" --set metrics.listen="unix:$work/run/metrics.sock" >"$work/log" 2>&1 &
  daemon=$!
  local code
  for _ in $(seq $((seconds * 10))); do
    code=0
    "$arctl" status >/dev/null 2>&1 || code=$?
    if [ $code = 0 ] || [ $code = 6 ]; then return 0; fi  # 6: degraded
    kill -0 "$daemon" 2>/dev/null || fail "arcommd ended while starting"
    sleep 0.1
  done
  fail "arcommd did not answer within $seconds s"
}
