#!/usr/bin/env bash
# What ./quickstart demo shows of this machine's GPUs, on a finished build with CUDA: a daemon that serves them, under an
# MPS server of its own; its self-test; times beside NCCL where there is one.
#   client/examples/demo_gpus.sh [build folder]
# LIBNCCL: the file to load NCCL from. DEMO_MAX_SIZE: of the sums; by default 20M in the self-test, and 64M.
set -euo pipefail
build=$(cd "${1:-build/release}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
[ "$gpus" -gt 0 ] || { echo "demo: nvidia-smi -L names no GPU" >&2; exit 1; }
source client/examples/demo_node.sh
ranks=$((gpus < 8 ? gpus : 8))  # as many as a communicator on GPUs takes

# Where NCCL is: what LIBNCCL says, Python's package, else what the loader finds.
nccl=${LIBNCCL:-$(python3 -c 'import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null || true)}
peers=()
if [ -n "$nccl" ]; then
  peers=(--peers nccl --nccl "$nccl")
elif ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2'; then
  peers=(--peers nccl)
fi

export CUDA_MODULE_LOADING=EAGER NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
start_daemon 60 --set device.backend=cuda --set gpu.mps=manage
[ ! -d "$work/run/mps/pipe" ] || export CUDA_MPS_PIPE_DIRECTORY=$work/run/mps/pipe

heading "5. A daemon that serves GPUs (arctl status)"
timeout 10 "$arctl" status || [ $? = 6 ] || fail "arctl status failed"
heading "6. A self-test of these GPUs (arctl check)"
timeout 400 "$arctl" check --device gpu -e "${DEMO_MAX_SIZE:-20M}" || fail "arctl check failed"
if [ ${#peers[@]} != 0 ]; then
  heading "7. AllReduce between $ranks GPUs, beside NCCL in the same processes (arctl bench)"
else
  heading "7. AllReduce between $ranks GPUs (arctl bench; no libnccl.so.2 was found to compare with: LIBNCCL names one)"
fi
timeout 300 "$arctl" bench --device gpu -r "$ranks" -b 1K -e "${DEMO_MAX_SIZE:-64M}" -f 16 -n 20 --rounds 11 "${peers[@]}" || fail "arctl bench failed"
