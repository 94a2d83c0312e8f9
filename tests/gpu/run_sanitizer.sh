#!/usr/bin/env bash
# compute-sanitizer over the kernels, on small sizes: memory, barriers, and races in shared memory. Called by run.sh,
# part `sanitizer`:   run_sanitizer.sh <folder for the results>
# In-stream kernels run in their clients, one process for each rank, without MPS; those of the daemon in all_reduce_gpu_test,
# a thread for each rank where the tool makes a launch last as long as its kernel.
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=$(mkdir -p "$1" && cd "$1" && pwd)
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[ -n "$sanitizer" ] || { echo "not possible here: there is no compute-sanitizer (it comes with the CUDA toolkit)"; exit 1; }
folder=$(mktemp -d /tmp/arcommd-sanitizer-XXXXXX)
chmod 755 "$folder"
export CUDA_MPS_PIPE_DIRECTORY=$folder/no-mps
status=0
tools=(memcheck synccheck racecheck)

ask() { LD_LIBRARY_PATH=$programs/lib:$programs/client timeout -k 2 10 "$programs/arctl" --runtime-dir "$folder/run" "$@"; }

# The daemon's account, since no tool names the kernels it has looked at: operations that are done, and how many small
# ones it launched itself. In-stream ones are done without it.
account() {
  ask status --json >"$folder/status.json" && ask trace --last 0 --json >"$folder/trace.json" &&
    python3 -c '
import json, sys
status, trace = (json.load(open(name)) for name in sys.argv[1:])
print(sum(worker["operations_done"] for worker in status["workers"]),
      sum(record["send_count"] <= 32768 and record["algorithm"] != "in_stream" for record in trace["records"]))
' "$folder/status.json" "$folder/trace.json"
}

judge() { # judge <name> <exit status> <log>...: no error in any of them, and an account in each
  local name=$1 code=$2 log
  shift 2
  for log in "$@"; do
    grep -q 'SUMMARY: 0 \(errors\|hazards\)' "$log" || code=1
    grep 'SUMMARY' "$log" | grep -v 'SUMMARY: 0 ' >/dev/null && code=1
  done
  if [ "$code" = 0 ]; then echo "$name: no finding"; else
    status=1
    echo "FAILED: $name"
    tail -n 8 "$@"
  fi
}

mkdir -p "$folder/run" "$folder/state"
LD_LIBRARY_PATH=$programs/lib timeout -k 10 300 "$programs/arcommd" --set device.backend=cuda --set gpu.mps=off \
  --set gpu.resident=false --set recorder.records=65536 --set runtime_dir="$folder/run" --set state_dir="$folder/state" \
  --set metrics.listen= --set access.group= --set access.admin_group= >"$out/sanitizer-arcommd.log" 2>&1 &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; wait "$daemon"; rm -rf "$folder"' EXIT
for _ in $(seq 300); do
  [ -S "$folder/run/client.sock" ] && break
  kill -0 "$daemon" 2>/dev/null || { echo "FAILED: arcommd does not start"; tail -n 5 "$out/sanitizer-arcommd.log"; exit 1; }
  sleep 0.1
done
for tool in "${tools[@]}"; do
  pids=() code=0
  read -r before _ < <(account)
  for rank in 0 1; do
    ARCOMM_RUNTIME_DIR=$folder/run LD_LIBRARY_PATH=$programs/client timeout -k 5 60 "$sanitizer" --tool "$tool" \
      --target-processes all --kernel-regex kns=arcomm_ "$programs/client_rank" --verify --dtype f16 \
      --sizes 1k,64k,1m,6m --timeout-ms 40000 --rank "$rank" --ranks 2 --id-file "$folder/id-$tool" \
      >"$out/sanitizer-in-stream-$tool-$rank.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || code=1; done
  read -r after launched < <(account)
  if [ "${after:-0}" -le "${before:-0}" ] || [ "${launched:-1}" != 0 ]; then
    echo "no in-stream kernels were seen: operations done: ${before:-?}, then ${after:-?}; small ones launched: ${launched:-?}"
    code=1
  fi
  judge "in-stream kernels, $tool" $code "$out/sanitizer-in-stream-$tool-"[01].log
done
for tool in "${tools[@]}"; do
  log=$out/sanitizer-kernels-$tool.log
  ARCOMM_LAUNCH_APART=1 LD_LIBRARY_PATH=$programs/lib timeout -k 5 120 "$sanitizer" --tool "$tool" \
    "$programs/all_reduce_gpu_test" --gtest_brief=1 --gtest_filter='Ranks/AllReduceOnGpus.TakesAnyPointer*/2' >"$log" 2>&1
  code=$?
  grep -q '\[  PASSED  \] [1-9]' "$log" || { echo "no test was run"; code=1; }
  judge "kernels of the daemon, $tool" $code "$log"
done
exit $status
