#!/usr/bin/env bash
# The part of ./quickstart demo that shows GPUs, without one: nvidia-smi is a script, CUDA's driver, the library and NCCL
# are fake_gpus, the daemon serves the host whatever it is told.
#   demo_gpus_test.sh ARCTL ARCOMMD [FAKES]      without the fakes: only what goes wrong
set -euo pipefail
arctl=$1 arcommd=$2 fakes=${3:-}
demo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/client/examples/demo_gpus.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; cat "$folder/said"; exit 1; }

mkdir -p "$folder/build/client/arctl" "$folder/build/daemon" "$folder/bin"
ln -s "$arctl" "$folder/build/client/arctl/arctl"
cat >"$folder/build/daemon/arcommd" <<TEXT
#!/usr/bin/env bash
exec "$arcommd" "\${@/device.backend=cuda/device.backend=host}"
TEXT
cat >"$folder/bin/nvidia-smi" <<'TEXT'
#!/usr/bin/env bash
for gpu in ${FAKE_GPUS:-}; do echo "GPU $gpu: a fake GPU (UUID: GPU-$gpu)"; done
TEXT
chmod +x "$folder/build/daemon/arcommd" "$folder/bin/nvidia-smi"
export PATH=$folder/bin:$PATH
run() { env "$@" bash "$demo" "$folder/build" >"$folder/said" 2>&1; }
says() { grep -qF -- "$1" "$folder/said" || fail "it does not say: $1"; }

if [ -n "$fakes" ]; then
  libraries=LD_LIBRARY_PATH=$fakes/driver:$fakes/node
  export DEMO_MAX_SIZE=4M  # what the fakes can
  run FAKE_GPUS="0 1" "$libraries" LIBNCCL="$fakes/node/libnccl.so.2" || fail "it ends with $?"
  for words in "A self-test of these GPUs" "all results are right" "beside NCCL in the same processes" "nccl us"; do
    says "$words"
  done
  if run FAKE_GPUS="0 1" "$libraries" LIBNCCL="$fakes/node/libnccl.so.2" ARCOMM_FAKE_WRONG=arcommd; then
    fail "a wrong sum is no failure"
  fi
  says "demo: arctl check failed"
  says "elements are wrong"
  unset DEMO_MAX_SIZE
fi
# No driver behind nvidia-smi's words; no GPU at all.
if run FAKE_GPUS="0 1" LIBNCCL=/nowhere/libnccl.so.2; then fail "it goes on without a driver"; fi
says "demo: arctl check failed"
if run FAKE_GPUS=; then fail "it goes on without a GPU"; fi
says "names no GPU"
[ -z "$(pgrep -f "$folder/build/daemon" || true)" ] || fail "a daemon is left"
echo ok
