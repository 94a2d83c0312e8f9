#!/usr/bin/env bash
# On a machine with GPUs, from the bundle: checks first, then measurements; a short table last.
#   run.sh [folder for the results]      RANKS="2 4": how many GPUs the benchmark takes; SKIP_CHECKS=1
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/results}
mkdir -p "$out"
export CUDA_MODULE_LOADING=EAGER NCCL_NVLS_ENABLE=0
gpus=$(nvidia-smi -L | grep -c '^GPU')
nccl=$(python3 -c 'import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null || true)
status=0
echo "$gpus GPUs; NCCL: ${nccl:-as the loader finds it}"
if [ -z "${SKIP_CHECKS:-}" ]; then
  timeout 200 "$here/all_reduce_gpu_test" --gtest_brief=1 >"$out/checks.log" 2>&1 || status=1
  tail -n 40 "$out/checks.log"
fi
for ranks in ${RANKS:-2}; do
  [ "$ranks" -le "$gpus" ] || continue
  timeout 150 "$here/kernel_gpu_bench" --ranks "$ranks" --nccl "$nccl" --json "$out/kernels-$ranks.json" 2>&1 |
    tee "$out/kernels-$ranks.txt" || status=1
done
if [ $status != 0 ]; then
  echo "FAILED: see above and $out/checks.log"
elif [ -n "${SKIP_CHECKS:-}" ]; then
  echo "checks skipped; what was timed was verified"
else
  echo "all checks passed"
fi
exit $status
