#!/usr/bin/env bash
# Two daemons on 127.0.0.2 and 127.0.0.3, and a communicator of one rank each: results and times. With GPUS=2 each has a GPU
# of its own, and NCCL over its socket transport is timed by the same program; else both share one, and no peer runs so.
# NODES_SWEEP="settings; settings; ...": only times, with each of these lists of key=value, beside none.
# Called by run.sh:   GPUS=2 LIBNCCL=path run_nodes.sh <folder for the results>      NODES_MPS=0: without MPS (slow)
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=$(mkdir -p "$1" && cd "$1" && pwd)
. "$here/daemon.sh"
gpus=${GPUS:-1}
daemons=()
end_nodes() {
  local pid
  for pid in "${daemons[@]}"; do
    pkill -KILL -P "$pid" 2>/dev/null
    kill -KILL "$pid" 2>/dev/null
  done
  end
}
trap end_nodes EXIT

ask_node() { # ask_node <number> <arguments>
  local node=$1
  shift
  LD_LIBRARY_PATH=$programs/lib:$programs/client timeout -k 2 "${LIMIT:-10}" "$programs/arctl" --runtime-dir "$folder/node$node" "$@"
}
gpu_of() { echo $(($1 % gpus)); } # gpu_of <node>
start_node() { # start_node <number> <more arguments>
  local node=$1
  shift
  mkdir -p "$folder/node$node" "$folder/state$node"
  CUDA_VISIBLE_DEVICES=$(gpu_of "$node") LD_LIBRARY_PATH=$programs/lib timeout -k 10 500 "$programs/arcommd" \
    --set device.backend=cuda --set runtime_dir="$folder/node$node" \
    --set state_dir="$folder/state$node" --set metrics.listen= --set access.group= --set access.admin_group= \
    --set log.level=debug --set net.name="node$node" --set net.listen="127.0.0.$((node + 2)):7400" \
    --set net.peers=127.0.0.2:7400,127.0.0.3:7400 --set net.token_file="$folder/token" \
    --set net.peer_timeout_ms=3000 "$@" >>"$out/node$node.log" 2>&1 &
  daemons[node]=$!
}
logs() {
  local node
  for node in 0 1; do
    echo "---- the last lines of node$node"
    tail -n 25 "$out/node$node.log"
  done
}
start_nodes() {
  local node state
  for node in 0 1; do start_node "$node" "$@"; done
  for _ in $(seq 300); do
    state=$(for node in 0 1; do ask_node "$node" net --json 2>/dev/null; done)
    [ "$(grep -o '"alive"' <<<"$state" | wc -l)" -ge 2 ] && return 0
    sleep 0.2
  done
  fail "the nodes do not know each other"
  for node in 0 1; do ask_node "$node" status; ask_node "$node" net; done
  logs
  return 1
}
run_on_nodes() { # run_on_nodes <name> <program and arguments>: rank by rank, the first on node0
  local name=$1 node pids=() code bad=0
  shift
  for node in 0 1; do
    CUDA_VISIBLE_DEVICES=$(gpu_of "$node") timeout -k 5 "${LIMIT:-100}" "$@" --rank "$node" --ranks 2 --gpu 0 --runtime-dir "$folder/node$node" --id-file "$folder/id-$name" \
      >"$out/$name-$node.log" 2>&1 &
    pids[node]=$!
  done
  for node in 0 1; do
    wait "${pids[$node]}"
    code=$?
    [ $code = 0 ] && continue
    bad=1
    fail "$name, rank $node: status $code"
    tail -n 12 "$out/$name-$node.log"
    ask_node "$node" comms 2>&1 | tail -n 12
  done
  [ $bad = 0 ] || logs
  tail -n 20 "$out/$name-0.log"
  return $bad
}
kill_one() { # the other one hears of it, and the nodes serve on
  local node pids=() before
  for node in 0 1; do
    CUDA_VISIBLE_DEVICES=$(gpu_of "$node") timeout -k 5 60 "$programs/client_rank" --loop --sizes 4k,1m,4m --rank "$node" --ranks 2 --gpu 0 --runtime-dir "$folder/node$node" \
      --id-file "$folder/id-killed" >"$out/killed-$node.log" 2>&1 &
    pids[node]=$!
  done
  sleep 8
  pkill -KILL -P "${pids[1]}" || { fail "there is no rank 1 to kill"; tail -n 5 "$out/killed-1.log"; }
  before=$SECONDS
  wait "${pids[0]}"
  local code=$?
  [ $code = 124 ] || [ $code = 137 ] && fail "rank 0 hung after rank 1 of the other node was killed"
  [ $code = 0 ] && fail "rank 0 did not hear that rank 1 was killed"
  wait "${pids[1]}"
  echo "rank 1 (node1) was killed; rank 0 ended after $((SECONDS - before)) s and says:"
  tail -n 2 "$out/killed-0.log"
  grep -qE 'rank 1|node1' "$out/killed-0.log" || fail "what rank 0 heard names neither rank nor node"
  [ $code = 1 ] || logs
}

# NCCL as it is between hosts without RDMA; by <name>, with its own defaults and with the settings that its users reach for.
sizes=1k,4k,16k,64k,256k,1m,4m,16m,64m
nccl_over_sockets() { # nccl_over_sockets <name> <dtype> <variables of NCCL>
  local name=$1 dtype=$2 node pids=()
  shift 2
  for node in 0 1; do
    env CUDA_VISIBLE_DEVICES="$(gpu_of "$node")" NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo "$@" \
      NODE_RANK_JSON="$out/$name-$dtype.json" timeout -k 5 60 "$programs/node_rank" --nccl "$LIBNCCL" --dtype "$dtype" --sizes "$sizes" \
      --rank "$node" --ranks 2 --gpu 0 --id-file "$folder/id-$name-$dtype" >"$out/$name-$dtype-$node.log" 2>&1 &
    pids[node]=$!
  done
  for node in 0 1; do
    wait "${pids[$node]}" || { fail "$name, $dtype, rank $node: status $?"; tail -n 5 "$out/$name-$dtype-$node.log"; }
  done
}

(umask 077 && head -c 24 /dev/urandom | base64 >"$folder/token")
nvidia-smi -L
[ "${NODES_MPS:-1}" = 0 ] || start_mps
stop_nodes() {
  local node
  for node in 0 1; do
    kill -TERM "${daemons[$node]}" 2>/dev/null || fail "node$node ended by itself"
  done
  for node in 0 1; do
    for _ in $(seq 100); do
      kill -0 "${daemons[$node]}" 2>/dev/null || break
      sleep 0.1
    done
    kill -0 "${daemons[$node]}" 2>/dev/null && fail "node$node does not stop"
    wait "${daemons[$node]}" || fail "node$node ended with status $?"
  done
  daemons=()
}
sweep() { # sweep <lists of settings, between semicolons>: a table of medians
  local lists list pair number=0 settings
  IFS=';' read -ra lists <<<";$1"
  for list in "${lists[@]}"; do
    settings=()
    for pair in $list; do settings+=(--set "$pair"); done
    start_nodes "${settings[@]}" || return 1
    for dtype in ${NODES_DTYPES:-f32}; do
      NODE_RANK_JSON=$out/sweep-$number-$dtype.json run_on_nodes "sweep-$number-$dtype" "$programs/node_rank" --dtype "$dtype" \
        --sizes "$sizes" >"$out/sweep-$number-$dtype.txt" || { cat "$out/sweep-$number-$dtype.txt"; continue; }
      python3 - "$out/sweep-$number-$dtype.json" "$dtype ${list:-as it is}" <<'EOF'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
print(sys.argv[2])
for field in ("median_us", "in_a_row_us"):
    print("  " + field.ljust(12) + "  ".join(f"{row['bytes'] >> 10}K {row[field]:.0f}" for row in rows))
EOF
    done
    stop_nodes
    number=$((number + 1))
  done
}
if [ -n "${NODES_SWEEP:-}" ]; then
  sweep "$NODES_SWEEP"
  [ "${NODES_MPS:-1}" = 0 ] || stop_mps
  exit $status
fi
start_nodes || exit 1
ask_node 0 status
ask_node 0 net
LIMIT=40 run_on_nodes small-f32 "$programs/node_rank" --dtype f32 --sizes 1k,64k || exit 1
for node in 0 1; do ask_node "$node" trace --json >"$out/trace-$node.json" 2>&1; done
for dtype in f32 bf16; do
  NODE_RANK_JSON=$out/nodes-$dtype.json run_on_nodes "nodes-$dtype" "$programs/node_rank" --dtype "$dtype" \
    --sizes "$sizes" || exit 1
done
for codec in fp8 q6 q4_rotated; do
  NODE_RANK_JSON=$out/nodes-$codec.json run_on_nodes "nodes-$codec" "$programs/node_rank" --dtype bf16 --codec "$codec" \
    --sizes 1k,64k,1m,64m || exit 1
done
# Captured, in place, unaligned, by plans, on several streams.
run_on_nodes verify "$programs/client_rank" --verify --dtype bf16 --sizes 1k,64k,1m,8m
run_on_nodes verify-cuda "$programs/client_rank" --verify --dtype f32 --memory cuda --sizes 4k,1m
kill_one
run_on_nodes after "$programs/node_rank" --dtype f32 --sizes 1k,1m
ask_node 0 net
stop_nodes
[ "${NODES_MPS:-1}" = 0 ] || stop_mps
if [ "$gpus" -ge 2 ] && [ -n "${LIBNCCL:-}" ]; then
  for dtype in f32 bf16; do
    nccl_over_sockets nccl-default "$dtype"
    nccl_over_sockets nccl-sockets "$dtype" NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=2
  done
  python3 "$here/nodes_figures.py" "$out" || fail "no figures between nodes"
fi
[ $status = 0 ] || logs
[ $status = 0 ] && echo "GPUs of two nodes: all is well"
exit $status
