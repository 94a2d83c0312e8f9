#!/usr/bin/env bash
# The daemon on GPUs, end to end, from the bundle: MPS, arcommd, client processes, PyTorch; then the table.
# Called by run.sh:   RANKS="2 4" PARTS="service torch tune" run_service.sh <folder for the results>
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=$(mkdir -p "$1" && cd "$1" && pwd)
parts=" ${PARTS:-service torch tune} "
read -r -a ranks_here <<<"${RANKS:-2}"
folder=$(mktemp -d /tmp/arcommd-gpu-XXXXXX)
chmod 755 "$folder"
status=0
daemon=

fail() {
  status=1
  echo "FAILED: $*"
}

end() {
  [ -n "$daemon" ] && kill -KILL "$daemon" 2>/dev/null
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
  [ -e "${CUDA_MPS_PIPE_DIRECTORY:-/nowhere}/nvidia-cuda-mps-control.pid" ] || return 0
  echo quit | timeout -k 5 20 nvidia-cuda-mps-control
  cp -r "$CUDA_MPS_LOG_DIRECTORY" "$out/" 2>/dev/null
  return 0
}

# ---- the daemon ----
ask() { LD_LIBRARY_PATH=$programs/lib:$programs/client timeout -k 2 "${LIMIT:-10}" "$programs/arctl" --runtime-dir "$folder/run" "$@"; }

start_daemon() {
  mkdir -p "$folder/run" "$folder/state"
  LD_LIBRARY_PATH=$programs/lib timeout -k 10 900 "$programs/arcommd" --set device.backend=cuda --set runtime_dir="$folder/run" \
    --set state_dir="$folder/state" --set metrics.listen= --set access.group= --set access.admin_group= \
    --set log.level=debug >"$out/arcommd.log" 2>&1 &
  daemon=$!
  for _ in $(seq 600); do
    ask status >"$out/status.txt" 2>&1 && return 0
    kill -0 "$daemon" 2>/dev/null || break
    grep -q degraded "$out/status.txt" && return 0
    sleep 0.1
  done
  fail "arcommd does not serve"
  tail -n 20 "$out/arcommd.log"
  return 1
}
stop_daemon() {
  kill -TERM "$daemon" 2>/dev/null || { fail "arcommd ended by itself"; tail -n 20 "$out/arcommd.log"; return; }
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

# One rank is killed while all of them work: the others hear of it, and the node serves on.
kill_a_rank() {
  local ranks=$1 rank
  LIMIT=60 start_ranks killed "$ranks" "$programs/client_rank" --loop
  sleep 5
  pkill -KILL -P "${pids[$((ranks - 1))]}"
  local before=$SECONDS
  for ((rank = 0; rank < ranks - 1; ++rank)); do
    wait "${pids[$rank]}"
    local code=$?
    [ $code = 124 ] || [ $code = 137 ] && fail "rank $rank hung after rank $((ranks - 1)) was killed"
    [ $code = 0 ] && fail "rank $rank did not hear that rank $((ranks - 1)) was killed"
  done
  wait "${pids[$((ranks - 1))]}"
  echo "rank $((ranks - 1)) of $ranks was killed; the others ended after $((SECONDS - before)) s:"
  tail -qn 1 "$out/killed-$ranks-0.log"
  run_ranks after "$ranks" "$programs/client_rank" --verify
}

table() { # what a client's stream saw, beside NCCL of kernel_gpu_bench
  python3 - "$out" "$1" <<'PY'
import json, os, sys
out, ranks = sys.argv[1], sys.argv[2]
def load(path):
    try:
        with open(os.path.join(out, path)) as file: return json.load(file)
    except (OSError, ValueError): return []
ours = {row["bytes"]: row for row in load(f"service-{ranks}.json")}
nccl = {row["bytes"]: row.get("nccl_us", [0, 0]) for row in load(f"kernels-{ranks}.json")}
if not ours: sys.exit(f"no figures of {ranks} ranks")
print(f"{ranks} GPUs, us per sum     arcommd stream   graph |  NCCL stream   graph | times as fast")
for size in sorted(ours):
    stream, graph = ours[size].get("stream_us", 0), ours[size].get("graph_us", 0)
    theirs = nccl.get(size, [0, 0])
    ratio = ["%5.2f" % (t / o) if t > 0 and o > 0 else "    -" for t, o in zip(theirs, (stream, graph))]
    nccl_text = ["%.2f" % t if t > 0 else "-" for t in theirs]
    print(f"{size:>12} {stream:>26.2f} {graph:>7.2f} | {nccl_text[0]:>12} {nccl_text[1]:>7} | {' '.join(ratio)}")
PY
}

start_mps
start_daemon || exit 1
ask status
if [[ $parts == *" service "* ]]; then
  for ranks in "${ranks_here[@]}"; do
    alive || break
    run_ranks verify-arc "$ranks" "$programs/client_rank" --verify
    run_ranks verify-cuda "$ranks" "$programs/client_rank" --verify --memory cuda --dtype f32
    # As kernel_gpu_bench does: half precision.
    run_ranks bench "$ranks" "$programs/client_rank" --bench --dtype f16 --json "$out/service-$ranks.json"
  done
  alive && ask status
  alive && kill_a_rank "${ranks_here[0]}"
fi
if [[ $parts == *" torch "* ]] && alive; then
  for ranks in "${ranks_here[@]}"; do run_ranks torch "$ranks" python3 "$here/torch_rank.py"; done
fi
# Last: what was timed above chose by the built-in table.
if [[ $parts == *" tune "* ]] && alive; then
  if LIMIT=150 ask tune >"$out/tune.txt" 2>&1; then tail -n 20 "$out/tune.txt"; else
    fail "arctl tune: status $?"
    tail -n 8 "$out/tune.txt"
  fi
  for size in 64K 256K 4M 64M; do ask tune --explain "$size" | tee -a "$out/explain.txt" || fail "arctl tune --explain $size"; done
  alive && run_ranks tuned "${ranks_here[0]}" "$programs/client_rank" --verify
fi
alive && ask status | tail -n 12
stop_daemon
if [[ $parts == *" service "* ]]; then
  for ranks in "${ranks_here[@]}"; do table "$ranks" | tee "$out/service-$ranks.txt"; done
fi
exit $status
