# Sourced by run_service.sh and run_faults.sh, which set $here, $programs and $out: MPS and arcommd in folders of their
# own, and the processes of a communicator's ranks, each of which ends by itself.
folder=$(mktemp -d /tmp/arcommd-gpu-XXXXXX)
chmod 755 "$folder"
status=0
daemon=

fail() {
  status=1
  echo "FAILED: $*"
}

end() {
  if [ -n "$daemon" ]; then
    pkill -KILL -P "$daemon" 2>/dev/null
    kill -KILL "$daemon" 2>/dev/null
  fi
  stop_mps
  rm -rf "$folder"
}
trap end EXIT

# ---- MPS ----
start_mps() {
  export CUDA_MPS_PIPE_DIRECTORY=$folder/mps-pipe CUDA_MPS_LOG_DIRECTORY=$folder/mps-log
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  timeout -k 5 20 nvidia-cuda-mps-control -d || fail "MPS did not start"
}
stop_mps() {
  if [ -e "${CUDA_MPS_PIPE_DIRECTORY:-/nowhere}/nvidia-cuda-mps-control.pid" ]; then
    echo quit | timeout -k 5 20 nvidia-cuda-mps-control
    cp -r "$CUDA_MPS_LOG_DIRECTORY" "$out/" 2>/dev/null
  fi
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

# ---- the daemon ----
ask() { LD_LIBRARY_PATH=$programs/lib:$programs/client timeout -k 2 "${LIMIT:-10}" "$programs/arctl" --runtime-dir "$folder/run" "$@"; }

try_daemon() { # try_daemon <more arguments>: 1 where it ends by itself, or does not serve within a minute
  mkdir -p "$folder/run" "$folder/state"
  LD_LIBRARY_PATH=$programs/lib timeout -k 10 900 "$programs/arcommd" --set device.backend=cuda --set runtime_dir="$folder/run" \
    --set state_dir="$folder/state" --set metrics.listen= --set access.group= --set access.admin_group= \
    --set log.level=debug "$@" >>"$out/arcommd.log" 2>&1 &
  daemon=$!
  for _ in $(seq 600); do
    ask status >"$out/status.txt" 2>&1 && return 0
    kill -0 "$daemon" 2>/dev/null || break
    grep -q degraded "$out/status.txt" && return 0
    sleep 0.1
  done
  return 1
}
start_daemon() { # start_daemon <more arguments>
  try_daemon "$@" && return 0
  fail "arcommd does not serve"
  tail -n 20 "$out/arcommd.log"
  return 1
}
stop_daemon() {
  kill -TERM "$daemon" 2>/dev/null || { fail "arcommd ended by itself"; tail -n 20 "$out/arcommd.log"; daemon=; return; }
  for _ in $(seq 200); do
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$daemon" 2>/dev/null; then fail "arcommd does not stop"; kill -KILL "$daemon"; fi
  wait "$daemon" || fail "arcommd ended with status $?"
  daemon=
}
alive() { kill -0 "$daemon" 2>/dev/null || { fail "arcommd died: see $out/arcommd.log"; tail -n 20 "$out/arcommd.log"; return 1; }; }

# ---- clients ----
export ARCOMM_RUNTIME_DIR=$folder/run
export LD_LIBRARY_PATH=$programs/client${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

pids=()
start_ranks() { # start_ranks <name> <ranks> <program and arguments>
  local name=$1 ranks=$2 rank
  shift 2
  pids=()
  for ((rank = 0; rank < ranks; ++rank)); do
    timeout -k 5 "${LIMIT:-180}" "$@" --rank "$rank" --ranks "$ranks" --id-file "$folder/id-$name-$ranks" \
      >"$out/$name-$ranks-$rank.log" 2>&1 &
    pids+=($!)
  done
}
end_ranks() { # end_ranks <name> <ranks>: all of them well?
  local name=$1 ranks=$2 rank
  for ((rank = 0; rank < ranks; ++rank)); do
    wait "${pids[$rank]}" || { fail "$name, rank $rank of $ranks: status $?"; tail -n 8 "$out/$name-$ranks-$rank.log"; }
  done
}
run_ranks() { start_ranks "$@" && end_ranks "$1" "$2"; }
