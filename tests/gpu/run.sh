#!/usr/bin/env bash
# On a machine with GPUs, from the bundle: checks first, then measurements; a short table last.
#   run.sh [folder for the results]
#   RANKS="2 4"     how many GPUs to take, one after the other; more than there are is left out
#   PARTS="kernels network service torch tune named peers"    what to run; `network` needs one GPU (RANKS=1)
#                   backend, when it is named: torch.distributed's backend arcomm beside NCCL's, and its figures
#                   sanitizer, when it is named: compute-sanitizer over small sizes, two GPUs
#                   faults, when it is named: what breaks, and what must follow, a line for each case
#                   nodes, when it is named: two daemons and a communicator of both; on one GPU (RANKS=1), or a GPU each
#                   and NCCL over sockets beside them (RANKS=2)
#                   jit, when it is named: fault 52, the kernels that a driver makes of PTX
#                   full, when it is named: fault 45, on one GPU (RANKS=1), or of two one that is filled (RANKS=2)
#                   memory, when it is named: what is taken of the GPUs' memory, step by step
#                   four, named alone: what the second, third and fourth communicator of the same GPUs take
#                   beside, when it is named: what AllReduces lose beside others and beside matrix products, and those beside them
#                   soak, when it is named: many replays (REPLAYS, SOAK_SECONDS, SEED), all ranks in one process
#   SKIP_CHECKS=1   of `kernels` the measurements only
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/results}
parts=" ${PARTS:-kernels network service torch tune named peers} "
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/{kernels,service,torch-peer}-*.json  # one table, one run: nothing of an earlier one beside it
programs=$here/programs
if [ ! -d "$programs" ] || [ "$here/programs.tar.xz" -nt "$programs" ]; then
  rm -rf "$programs"
  mkdir -p "$programs"
  # By Python, as machines without the xz program have its library there. Times are those of now.
  python3 -c 'import shutil, sys; shutil.unpack_archive(sys.argv[1], sys.argv[2])' "$here/programs.tar.xz" "$programs" &&
    touch "$programs" || exit 1
fi
export CUDA_MODULE_LOADING=EAGER NCCL_NVLS_ENABLE=0
gpus=$(nvidia-smi -L | grep -c '^GPU')
nccl=$(python3 -c 'import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null || true)
status=0
ranks_here=() not_seen=()
for ranks in ${RANKS:-2}; do
  if [ "$ranks" -le "$gpus" ]; then ranks_here+=("$ranks"); else not_seen+=("$ranks ranks"); fi
done
[ ${#ranks_here[@]} != 0 ] || { echo "FAILED: there are $gpus GPUs here, too few for ${not_seen[*]}"; exit 1; }
echo "$gpus GPUs; ranks: ${ranks_here[*]}; NCCL: ${nccl:-as the loader finds it}"

check() { # check <limit in seconds> <name> <program> <arguments>: a test program, its log, its last lines
  local limit=$1 name=$2
  shift 2
  [ -e "$1" ] || { echo "$name: not in this bundle"; not_seen+=("$name (not in this bundle)"); return 0; }
  LD_LIBRARY_PATH=$programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 || { status=1; echo "FAILED: $name"; }
  tail -n 30 "$out/$name.log"
}

part() { # part <what it leaves unseen where it ends with 77> <command>
  local what=$1 code
  shift
  "$@"
  code=$?
  if [ $code = 77 ]; then not_seen+=("$what"); elif [ $code != 0 ]; then status=1; fi
}

if [[ $parts == *" kernels "* ]]; then
  if [ -z "${SKIP_CHECKS:-}" ]; then
    check 60 device "$programs/device_gpu_test" --gtest_brief=1
    check 60 codecs "$programs/codec_gpu_test" --gtest_brief=1
    check 300 checks "$programs/all_reduce_gpu_test" --gtest_brief=1
    check 200 in_stream "$programs/in_stream_gpu_test" --gtest_brief=1
    check 200 resident "$programs/resident_gpu_test" --gtest_brief=1
    check 120 hardware "$programs/gpu_hardware_gpu_test" --gtest_brief=1
    check 400 freed "$programs/freed_memory_gpu_test" --gtest_brief=1
  fi
  for ranks in "${ranks_here[@]}"; do
    LD_LIBRARY_PATH=$programs/lib timeout -k 5 150 "$programs/kernel_gpu_bench" --ranks "$ranks" --nccl "$nccl" --json "$out/kernels-$ranks.json" 2>&1 |
      tee "$out/kernels-$ranks.txt" || status=1
  done
fi
if [[ $parts == *" jit "* ]]; then
  # As on a GPU that the image has no machine code for. The driver takes minutes for all kernels, once: it keeps them.
  export CUDA_FORCE_PTX_JIT=1
  check 400 jit_in_stream "$programs/in_stream_gpu_test" --gtest_brief=1 --gtest_filter='*EqualTheReference*/0:*NameTheRank*/0'
  check 400 jit_coded_in_stream "$programs/in_stream_gpu_test" --gtest_brief=1 --gtest_filter='*CodedInStream.EqualTheGoldenCodec*/2Ranks:*CodedInStream.NameTheRank*/2Ranks:*CodedInStreamApart*/2Ranks'
  # The grid that stays is one of two GPUs at least.
  if [ "${ranks_here[-1]}" -ge 2 ]; then
    check 400 jit_resident "$programs/resident_gpu_test" --gtest_brief=1 --gtest_filter='*RunOneOperation/2Gpus:*EveryTypeAndOperation*/2Gpus:*CountsAndAlignments*/2Gpus:*ResidentFaults.ARankThatDoesNotCome*/2Gpus'
  else
    not_seen+=("resident grids made of PTX (two GPUs)")
  fi
  check 500 jit_all_reduce "$programs/all_reduce_gpu_test" --gtest_brief=1 --gtest_filter='*EqualsTheReference*/2:*EqualsTheReference*/3:*RefusesWhat*'
  unset CUDA_FORCE_PTX_JIT
fi
if [[ $parts == *" network "* ]]; then check 300 network "$programs/device_fifo_gpu_test" --gtest_brief=1; fi
if [[ $parts == *" service "* || $parts == *" soak "* || $parts == *" four "* || $parts == *" beside "* || $parts == *" torch "* || $parts == *" backend "* || $parts == *" tune "* || $parts == *" named "* || $parts == *" peers "* ]]; then
  RANKS="${ranks_here[*]}" PARTS=$parts LIBNCCL=$nccl part "NCCL in one process" bash "$here/run_service.sh" "$out"
fi
if [[ $parts == *" nodes "* ]]; then GPUS=${ranks_here[-1]} LIBNCCL=$nccl timeout -k 20 540 bash "$here/run_nodes.sh" "$out" || status=1; fi
if [[ $parts == *" memory "* ]]; then RANKS=${ranks_here[-1]} timeout -k 20 300 bash "$here/run_memory.sh" "$out" || status=1; fi
if [[ $parts == *" sanitizer "* ]]; then bash "$here/run_sanitizer.sh" "$out" || status=1; fi
if [[ $parts == *" faults "* ]]; then
  RANKS="${ranks_here[*]}" part "faults that are not possible here" timeout -k 20 400 bash "$here/run_faults.sh" "$out"
fi
if [[ $parts == *" full "* ]]; then
  GPUS=$((ranks_here[0] > 1 ? 2 : 1)) timeout -k 20 900 bash "$here/run_full_gpu.sh" "$out" || status=1
fi
# One file, for machines that send back few.
tar -C "$out" -czf "$here/logs.tar.gz" --exclude=logs.tar.gz . && mv "$here/logs.tar.gz" "$out/"
missing=
if [ ${#not_seen[@]} != 0 ]; then
  missing=$(printf ', %s' "${not_seen[@]}")
  missing="; not seen: ${missing#, }"
fi
if [ $status != 0 ]; then
  echo "FAILED: see above and the logs in $out"
elif [ -n "${SKIP_CHECKS:-}" ]; then
  echo "checks skipped; what was timed was verified$missing"
elif [ -n "$missing" ]; then
  echo "all that was run passed$missing"
else
  echo "all checks passed"
fi
exit $status
