#!/usr/bin/env bash
# What is taken of each GPU's memory, in MiB: by the driver, MPS and an idle daemon, and by a communicator before and
# after its first plan with slots; and that gpu.scratch_bytes is kept, with the right sums.
# Called by run.sh:   RANKS=2 run_memory.sh <folder for the results>
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=$(mkdir -p "$1" && cd "$1" && pwd)
ranks=${RANKS:-2}
. "$here/daemon.sh"

used_mb() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | tr '\n' ' '; }

# held <name> <sizes>: what is in use while a communicator that has run these holds still, with its clients.
held() {
  LIMIT=60 start_ranks "$1" "$ranks" "$programs/client_rank" --verify --dtype f16 --sizes "$2" --hold 4
  for _ in $(seq 300); do
    grep -qs holding "$out/$1-$ranks-0.log" && break
    sleep 0.1
  done
  used=$(used_mb)
  ask comms >"$out/$1-comms.txt" 2>&1
  end_ranks "$1" "$ranks"
  echo "a communicator that has run $2, with its clients: $used"
}

# Of this part: other daemons' lines are in the same log.
slots_here() { tail -n "+$((logged + 1))" "$out/arcommd.log" | grep 'has slots'; }

stages() {
  LD_LIBRARY_PATH=$programs/lib timeout -k 2 40 "$programs/memory_stages" "$ranks" || fail "memory_stages: status $?"
}

echo "MiB in use of each GPU: $(used_mb)"
echo "-- without MPS"
stages
start_mps
echo "-- with MPS"
stages
echo "with MPS alone: $(used_mb)"
logged=$(cat "$out/arcommd.log" 2>/dev/null | wc -l)
start_daemon || exit 1
echo "with the daemon idle: $(used_mb)"
held small 1m
slots_here >/dev/null && fail "1 MiB operations took slots"
held large 1m,32m
slots_here || fail "32 MiB operations got no slots"
alive && stop_daemon
start_daemon --set gpu.scratch_bytes=64MiB || exit 1
held limited 1m,32m
grep 'why not stream' "$out/limited-comms.txt" || fail "arctl comms does not say why there are no slots"
alive && stop_daemon
exit $status
