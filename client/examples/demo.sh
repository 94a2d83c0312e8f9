#!/usr/bin/env bash
# What ./quickstart demo shows, on a finished build: a daemon of its own in a temporary folder, the tensor-parallel
# language model over it, the daemon's own account of it; then the GPUs, where there are some and the build has CUDA.
# Leaves nothing running and nothing behind.
#   client/examples/demo.sh [build folder]
set -euo pipefail
build=$(cd "${1:-build/release}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source client/examples/demo_node.sh
# On the host, also where there are GPUs: what is shown is the same everywhere.
start_daemon 10 --set device.backend=host

heading "1. A language model, trained here and served by 2 processes that share its layers through arcommd"
timeout 300 "$build/client/examples/tensor_parallel_lm" --ranks 2 || fail "the example failed"
heading "2. What the daemon did for it (arctl status)"
timeout 10 "$arctl" status || fail "arctl status failed"
heading "3. A self-test of this node (arctl check)"
timeout 60 "$arctl" check || fail "arctl check failed"
heading "4. AllReduce from 4 processes (arctl bench)"
timeout 60 "$arctl" bench -r 4 -b 1K -e 4M -f 16 -n 20 -w 5 || fail "arctl bench failed"
printf '\nAll of it ran in %s, which is gone when this script ends.\n' "$work"

# What goes wrong there is told, and takes nothing back of what was shown above.
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  if ! grep -q '^ARCOMM_NVCC:[A-Z]*=/' "$build/CMakeCache.txt" 2>/dev/null; then
    echo "The GPUs of this machine were not shown: nvcc was not found when this was built. Put it on PATH and run this again."
  elif client/examples/demo_gpus.sh "$build"; then
    printf '\nThe GPUs did as well.\n'
  else
    printf '\n\033[1mThe part on GPUs failed; its reason is above. All that ran on the host went well.\033[0m\n' >&2
  fi
fi
