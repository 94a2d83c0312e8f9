#!/usr/bin/env bash
# Gathers what a machine with GPUs and without our packages needs, into stage/gpu; there, run.sh does the rest.
#   tests/gpu/bundle.sh [build folder]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=${1:-$top/build/cuda}
out=$top/stage/gpu
mkdir -p "$out"
for program in all_reduce_gpu_test kernel_gpu_bench; do strip -o "$out/$program" "$build/tests/gpu/$program"; done
cp "$here/run.sh" "$out/"
du -sh "$out"
