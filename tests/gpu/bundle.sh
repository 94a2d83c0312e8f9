#!/usr/bin/env bash
# Gathers what a machine with GPUs and without our packages needs, into stage/gpu; there, run.sh does the rest.
#   tests/gpu/bundle.sh [build folder]      PARTS="kernels network service": what to gather, all of it unless named
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=${1:-$top/build/cuda}
stage=$top/stage/gpu
out=$stage/programs
most_mb=64
parts=" ${PARTS:-kernels network service} "
rm -rf "$stage"
mkdir -p "$out"

take() { # take <file> [name]: stripped
  strip -o "$out/${2:-$(basename "$1")}" "$1"
}

take_libraries() { # take_libraries <program>...: shared ones, less those that every machine has in a newer version
  mkdir -p "$out/lib"
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libarclient|libcuda)\.so' |
    while read -r library; do
      strip -o "$out/lib/$(basename "$library")" "$(readlink -f "$library")"
    done
}

if [[ $parts == *" kernels "* ]]; then
  take_libraries "$build/tests/gpu/gpu_hardware_gpu_test" "$build/tests/gpu/kernel_gpu_bench"  # they have those of the others
  for program in device_gpu_test all_reduce_gpu_test in_stream_gpu_test resident_gpu_test gpu_hardware_gpu_test freed_memory_gpu_test codec_gpu_test kernel_gpu_bench; do take "$build/tests/gpu/$program"; done
fi
if [[ $parts == *" network "* ]]; then
  take_libraries "$build/tests/gpu/device_fifo_gpu_test"
  take "$build/tests/gpu/device_fifo_gpu_test"
fi
if [[ $parts == *" service "* ]]; then
  take "$build/daemon/arcommd"
  take "$build/client/arctl/arctl"
  mkdir -p "$out/client"
  # Beside no other library: it must load into a process that has its own.
  take "$(readlink -f "$build/client/libarclient.so")" client/libarclient.so.0
  take "$build/tests/gpu/client_rank"
  take "$build/tests/gpu/fault_rank"
  take "$build/tests/gpu/node_rank"
  take "$build/tests/gpu/full_gpu"
  take "$build/tests/gpu/memory_stages"
  take "$build/tests/gpu/thread_stacks.so"
  take "$build/tests/gpu/two_gpus_one_process"
  take_libraries "$build/daemon/arcommd" "$build/client/arctl/arctl" "$build/tests/gpu/memory_stages"
  mkdir -p "$stage/python"
  cp -r "$top/client/python/arcomm" "$stage/python/"
  find "$stage/python" \( -name __pycache__ -o -name '*.so.0' \) -exec rm -rf {} +
fi
# Every program holds all kernels for several architectures, the same in each.
tar -C "$out" -c . | xz -6 -T0 >"$stage/programs.tar.xz"
rm -rf "$out"
find "$here" \( -name 'run*.sh' -o -name daemon.sh -o -name '*.py' \) -exec cp {} "$stage/" \;
size=$(du -sm "$stage" | cut -f1)
echo "$stage: $size MB"
[ "$size" -le "$most_mb" ] || { echo "more than $most_mb MB: leave parts out with PARTS" >&2; exit 1; }
