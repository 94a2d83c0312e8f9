#!/usr/bin/env bash
# The daemon on GPUs, end to end, from the bundle: MPS, arcommd, client processes, PyTorch; then the peers, without MPS
# and daemon; then the table and the drawing.
# Called by run.sh:   RANKS="2 4" PARTS="service torch tune named peers" LIBNCCL=path run_service.sh <folder for the results>
# 77: all that was run is well, and a program is not in the bundle.
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=$(mkdir -p "$1" && cd "$1" && pwd)
parts=" ${PARTS:-service torch tune named peers} "
# What is timed, of ours and of peers: a minute at most for each number of ranks.
sizes=1k,16k,64k,256k,1m,4m,16m,64m,256m,1g
read -r -a ranks_here <<<"${RANKS:-2}"
unseen=0
. "$here/daemon.sh"

# One rank is killed while all of them work: the others hear of it, and the node serves on.
kill_a_rank() {
  local ranks=$1 rank
  LIMIT=60 start_ranks killed "$ranks" "$programs/client_rank" --loop
  sleep 5
  pkill -KILL -P "${pids[$((ranks - 1))]}" || fail "there is no rank $((ranks - 1)) to kill"
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

# NCCL beside ours where there is one: of the path that was found, or as the loader finds it.
peers_here() {
  if [ -n "${LIBNCCL:-}" ]; then
    echo "--peers nccl,nccl-symmetric --nccl $LIBNCCL"
  elif ldconfig -p 2>/dev/null | grep 'libnccl\.so\.2' >/dev/null; then
    echo "--peers nccl,nccl-symmetric"
  fi
}

# Ours and NCCL's by the same ranks, half precision as kernel_gpu_bench; every batch is verified.
bench() {
  local before=$SECONDS peers
  read -r -a peers <<<"$(peers_here)"
  [ ${#peers[@]} != 0 ] || echo "no libnccl.so.2 here: arcommd is timed alone"
  LIMIT=400 ask bench --device gpu -r "$1" -b 1K -e 1G -f 4 -d float16 "${peers[@]}" --json \
    >"$out/service-$1.json" 2>"$out/bench-$1.log" || { fail "arctl bench, $1 ranks: status $?"; tail -n 8 "$out/bench-$1.log"; }
  echo "benchmark of $1 ranks: $((SECONDS - before)) s"
}

# The same with each codec, whose kernels the daemon loads for it. In batches that are long enough for a GPU that has waited
# for a check to come to its clocks; 4 MB at most, as a check takes the host its time.
bench_codecs() {
  local codec
  for codec in fp8 q8 q6 q4 q4_rotated; do
    LIMIT=60 ask bench --device gpu -r "$1" -b 256K -e 4M -f 4 -n 300 -d float16 --codec "$codec" >"$out/codec-$codec-$1.txt" 2>&1 ||
      fail "arctl bench --codec $codec, $1 ranks: status $?"
    tail -n 9 "$out/codec-$codec-$1.txt"
  done
}

# NCCL in one process, unless this run has timed it beside our kernels; PyTorch's symmetric memory, if there is one.
peers() {
  local before=$SECONDS
  if [[ $parts != *" kernels "* ]]; then
    if [ -e "$programs/kernel_gpu_bench" ]; then
      LD_LIBRARY_PATH=$programs/lib timeout -k 5 100 "$programs/kernel_gpu_bench" --only peers --ranks "$1" --nccl "${LIBNCCL:-}" --json "$out/kernels-$1.json" \
        >"$out/peers-$1.txt" 2>&1 || { fail "NCCL between $1 ranks: status $?"; tail -n 8 "$out/peers-$1.txt"; }
    else
      echo "kernel_gpu_bench, which times NCCL in one process, is not in this bundle"
      unseen=1
    fi
  fi
  LIMIT=120 run_ranks torch-peer "$1" python3 "$here/torch_peer.py" --sizes "$sizes" --json "$out/torch-peer-$1.json"
  tail -n 1 "$out/torch-peer-$1-0.log"
  echo "peers of $1 ranks: $((SECONDS - before)) s"
}

used_mb() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | tr '\n' ' '; }

before=$(used_mb)
start_mps
# With "four" each of four communicators has a share of the SMs.
more=()
[[ $parts == *" four "* ]] && more=(--set gpu.in_stream_communicators=4)
start_daemon "${more[@]}" || exit 1
echo "MiB in use of each GPU before MPS and the daemon, and with both idle: $before, $(used_mb)"
ask status
if [[ $parts == *" service "* ]]; then
  LIMIT=300 ask check --device gpu >"$out/check.txt" 2>&1 || fail "arctl check: status $?"
  cat "$out/check.txt"
  for ranks in "${ranks_here[@]}"; do
    alive || break
    run_ranks verify-arc "$ranks" "$programs/client_rank" --verify
    run_ranks verify-cuda "$ranks" "$programs/client_rank" --verify --memory cuda --dtype f32
    run_ranks faults "$ranks" "$programs/client_rank" --faults --dtype f16 --timeout-ms 300 --sizes 4k,256k,1m,16m,32m
    # The same with stream memory operations in the post kernel's place.
    ARCOMM_POST=memops run_ranks verify-memops "$ranks" "$programs/client_rank" --verify --sizes 1k,64k,1m,32m
    ARCOMM_POST=memops run_ranks faults-memops "$ranks" "$programs/client_rank" --faults --dtype f16 --timeout-ms 300 \
      --sizes 4k,32m
    LIMIT=60 run_ranks calls "$ranks" "$programs/client_rank" --calls --dtype f16 --sizes 1k,64k,1m,8m,32m,64m
    grep -v 'all is well' "$out/calls-$ranks-0.log"
    bench "$ranks"
    bench_codecs "$ranks"
  done
  alive && ask status
  alive && kill_a_rank "${ranks_here[0]}"
fi
if [[ $parts == *" torch "* ]] && alive; then
  for ranks in "${ranks_here[@]}"; do
    run_ranks torch "$ranks" python3 "$here/torch_rank.py"
    alive || break
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True run_ranks torch-segments "$ranks" python3 "$here/torch_segments.py"
    tail -qn 1 "$out/torch-segments-$ranks-0.log"
    alive || break
    TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
      run_ranks torch-refused "$ranks" python3 "$here/torch_segments.py" --refused
    tail -qn 1 "$out/torch-refused-$ranks-0.log"
  done
fi
# The package for Python as torch.distributed's backend: held to NCCL's, a rank of it killed, then timed.
if [[ $parts == *" backend "* ]] && alive; then
  export PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
  for ranks in "${ranks_here[@]}"; do
    for command in check bench; do
      timeout -k 5 90 python3 -m arcomm "$command" --device gpu --ranks "$ranks" >"$out/python-$command-$ranks.txt" 2>&1 ||
        fail "python -m arcomm $command, $ranks ranks: status $?"
      cat "$out/python-$command-$ranks.txt"
    done
    LIMIT=110 run_ranks backend "$ranks" python3 "$here/torch_backend_rank.py"
    tail -qn 1 "$out/backend-$ranks-0.log"
    alive || break
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True LIMIT=60 run_ranks backend-segments "$ranks" \
      python3 "$here/torch_backend_rank.py" --only types_and_operations graphed
    tail -qn 1 "$out/backend-segments-$ranks-0.log"
    alive || break
    LIMIT=60 start_ranks backend-killed "$ranks" python3 "$here/torch_backend_rank.py" --killed
    for ((rank = 0; rank < ranks - 1; ++rank)); do
      wait "${pids[$rank]}" || { fail "backend, rank $rank did not hear of the rank that was killed: status $?"; tail -n 8 "$out/backend-killed-$ranks-$rank.log"; }
    done
    wait "${pids[$((ranks - 1))]}"
    tail -qn 1 "$out/backend-killed-$ranks-0.log"
    alive || break
    LIMIT=60 start_ranks backend-abandoned "$ranks" python3 "$here/torch_backend_rank.py" --abandoned
    for ((rank = 0; rank < ranks - 1; ++rank)); do
      wait "${pids[$rank]}"
      code=$?
      [ $code = 70 ] || { fail "backend, rank $rank was not ended by its watchdog: status $code"; tail -n 8 "$out/backend-abandoned-$ranks-$rank.log"; }
    done
    wait "${pids[$((ranks - 1))]}"
    tail -qn 1 "$out/backend-abandoned-$ranks-0.log"
    alive || break
    if python3 -c 'import transformers' 2>/dev/null; then
      LIMIT=210 run_ranks transformers "$ranks" python3 "$here/transformers_rank.py"
      grep -v Warning "$out/transformers-$ranks-0.log" | tail -n 14
    else
      echo "transformers: not installed here"
    fi
    alive || break
    LIMIT=110 run_ranks backend-figures "$ranks" python3 "$here/torch_backend_rank.py" --figures
    cat "$out/backend-figures-$ranks-0.log"
  done
fi
# What AllReduces and the caller's own kernels take from each other, ours and NCCL's.
if [[ $parts == *" beside "* ]] && alive; then
  export PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
  for ranks in "${ranks_here[@]}"; do
    alive || break
    LIMIT=120 run_ranks beside "$ranks" python3 "$here/torch_backend_rank.py" --beside --json "$out/beside-$ranks.json"
    cat "$out/beside-$ranks-0.log"
  done
fi
# What the second, third and fourth communicator of the same GPUs take, and the first while they are there.
if [[ $parts == *" four "* ]]; then
  for ranks in "${ranks_here[@]}"; do
    holders=()
    for nth in 1 2 3 4; do
      alive || break
      LIMIT=100 ask bench --device gpu -r "$ranks" -b 1K -e 16M -f 4 -d float16 --json >"$out/nth-$nth-$ranks.json" \
        2>"$out/nth-$nth-$ranks.log" || { fail "arctl bench, communicator $nth of $ranks ranks: status $?"; tail -n 8 "$out/nth-$nth-$ranks.log"; }
      [ $nth = 4 ] && break
      LIMIT=200 start_ranks "hold-$nth" "$ranks" "$programs/client_rank" --hold 150
      holders+=("${pids[@]}")
      for _ in $(seq 200); do grep holding "$out/hold-$nth-$ranks-0.log" >/dev/null 2>&1 && break; sleep 0.1; done
    done
    ask comms >"$out/comms-$ranks.txt" 2>&1
    for pid in "${holders[@]}"; do pkill -TERM -P "$pid"; done
    wait "${holders[@]}"
    python3 "$here/nth_figures.py" "$out" "$ranks" || fail "no figures of the communicators"
  done
fi
# Not among the parts that run unasked: a minute for each number of ranks. Streams that wait for their ranks must not
# share a channel with the other communicator's.
if [[ $parts == *" soak "* ]]; then
  soak_seconds=${SOAK_SECONDS:-60}
  for ranks in "${ranks_here[@]}"; do
    alive || break
    CUDA_DEVICE_MAX_CONNECTIONS=32 LIMIT=$((soak_seconds + 90)) run_ranks soak "$ranks" "$programs/client_rank" \
      --soak "$soak_seconds" --replays "${REPLAYS:-100000}" --seed "${SEED:-1}"
    tail -qn 1 "$out/soak-$ranks-0.log"
    alive || break
    timeout -k 5 120 "$programs/two_gpus_one_process" --ranks "$ranks" >"$out/one-process-$ranks.log" 2>&1 ||
      fail "two_gpus_one_process, $ranks ranks: status $?"
    tail -n 4 "$out/one-process-$ranks.log"
  done
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
# What the table does not choose on this machine serves too, all sizes.
if [[ $parts == *" named "* ]]; then
  for algorithm in ${ALGORITHMS:-stream flash copy_engine}; do
    start_daemon --set gpu.algorithm="$algorithm" || break
    for ranks in "${ranks_here[@]}"; do
      run_ranks "verify-$algorithm" "$ranks" "$programs/client_rank" --verify
      run_ranks "verify-cuda-$algorithm" "$ranks" "$programs/client_rank" --verify --memory cuda --dtype bf16
    done
    alive && echo "$algorithm serves every size"
    stop_daemon
  done
fi
stop_mps
if [[ $parts == *" peers "* ]]; then
  for ranks in "${ranks_here[@]}"; do peers "$ranks"; done
fi
if [[ $parts == *" service "* ]]; then
  for ranks in "${ranks_here[@]}"; do
    python3 "$here/run_figures.py" "$out" "$ranks" | tee "$out/service-$ranks.txt" || fail "no figures of $ranks ranks"
  done
  python3 "$here/plot.py" "$out" || fail "no drawing"
fi
[ $status = 0 ] || exit 1
[ $unseen = 0 ] || exit 77
