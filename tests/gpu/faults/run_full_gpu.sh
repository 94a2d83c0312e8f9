#!/usr/bin/env bash
# Fault 45 through real processes, under MPS: an innocent kernel of one process fills a GPU for 5, 15 and 30 s while
# others attach, allocate, register, join, sum and leave. The daemon survives, no turn of its worker takes 100 ms, and
# what is asked ends well, or by its deadline alone.
#   run_full_gpu.sh <folder for the results>     SECONDS_FULL="5 15 30"     CLIENTS=3     GPUS=1
# GPUS=1: communicators of one rank on the GPU that is filled. GPUS=2: communicators of two, and the second one's GPU is
# filled, beside others of one rank on the first GPU.
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=$(mkdir -p "$1/full-gpu" && cd "$1/full-gpu" && pwd)
rm -rf "${out:?}"/*
export CUDA_MODULE_LOADING=EAGER
. "$here/daemon.sh"
most_ms=100
failed=0
# What the worker does meanwhile, for the case that a turn is too long. Frames of arcommd are told by the file that it
# was bundled from: addr2line -Cfipe build/test/daemon/arcommd 0x<offset>.
export STACKS_PROGRAM=arcommd STACKS_THREAD=arc-worker STACKS_OUT=$out/stacks.txt

slowest_ms() { # the longest turn of any worker since the daemon began, milliseconds
  ask --json status 2>/dev/null | grep -o '"slowest_turn_seconds": *[0-9.e+-]*' |
    awk -F: '{ms = $2 * 1000; if (ms > most) most = ms} END {printf "%.1f", most}'
}
work() { # work <name> <timeout in ms> <rounds>: CLIENTS of them at once, and with two GPUs a communicator of both
  local client rank
  pids=() pair=()
  for ((rank = 0; rank < 2 && ${GPUS:-1} == 2; ++rank)); do
    timeout -k 5 180 "$programs/full_gpu" work --timeout-ms "$2" --rounds "$3" --runtime-dir "$folder/run" \
      --gpu "$rank" --rank "$rank" --ranks 2 --id-file "$folder/id-$1" >"$out/$1-rank-$rank.log" 2>&1 &
    pair+=($!)
  done
  for ((client = 0; client < ${CLIENTS:-3}; ++client)); do
    timeout -k 5 180 "$programs/full_gpu" work --timeout-ms "$2" --rounds "$3" --runtime-dir "$folder/run" \
      >"$out/$1-$client.log" 2>&1 &
    pids+=($!)
  done
}
end_work() { # end_work <name>
  local client rank
  for rank in "${!pair[@]}"; do
    wait "${pair[$rank]}" || { fail "$1, rank $rank of 2: status $?"; tail -n 4 "$out/$1-rank-$rank.log"; }
  done
  for ((client = 0; client < ${CLIENTS:-3}; ++client)); do
    wait "${pids[$client]}" || { fail "$1, client $client: status $?"; tail -n 4 "$out/$1-$client.log"; }
  done
}
longest() { # longest <name>: of each step, over all clients
  cat "$out/$1"-*.log | awk -F': ' '/ ms/ {split($2, t, " "); if (!($1 in most) || t[1] > most[$1]) most[$1] = t[1]}
    END {for (step in most) printf "%s %d, ", step, most[step]}'
}

where_it_stood() { # where_it_stood <since>: the stack that was seen most often, of those that are no waiting for work
  awk -v since="$1" '/^== / {if (stack != "") ++seen[stack]; stack = ""; on = $2 >= since; next} on {stack = stack $0 "\n"}
    END {if (stack != "") ++seen[stack]; for (one in seen) if (one !~ /epoll|doze|nanosleep/ && seen[one] > most) {most = seen[one]; found = one}
      printf "seen %d times while it worked:\n%s", most, found}' "$STACKS_OUT"
}

start_mps
LD_PRELOAD=$programs/thread_stacks.so start_daemon || exit 1
work quiet 10000 2
end_work quiet
echo "nothing fills the GPU: slowest turn $(slowest_ms) ms; ms: $(longest quiet)"
for seconds in ${SECONDS_FULL:-5 15 30}; do
  # Deadlines that the kernel outlasts, and one that outlasts the kernel.
  for timeout_ms in 2000 60000; do
    name=full-$seconds-$timeout_ms
    since=$(date +%s)
    timeout -k 5 120 "$programs/full_gpu" fill --seconds "$seconds" --gpu $((${GPUS:-1} - 1)) >"$out/fill-$seconds-$timeout_ms.log" 2>&1 &
    filler=$!
    for _ in $(seq 200); do
      grep -q '^full' "$out/fill-$seconds-$timeout_ms.log" && break
      sleep 0.05
    done
    grep -q '^full' "$out/fill-$seconds-$timeout_ms.log" || fail "the GPU was not filled: $(cat "$out/fill-$seconds-$timeout_ms.log")"
    work "$name" "$timeout_ms" 1
    end_work "$name"
    wait "$filler" || { fail "the kernel that fills the GPU: status $?"; cat "$out/fill-$seconds-$timeout_ms.log"; }
    alive
    turn=$(slowest_ms)
    awk -v turn="${turn:-1000000}" -v most=$most_ms 'BEGIN {exit !(turn < most)}' || { fail "a turn of the worker took $turn ms"; where_it_stood "$since"; }
    [ "$status" = 0 ] || failed=1
    echo "case 45: full for $seconds s, deadlines of $timeout_ms ms: $([ "$status" = 0 ] && echo ok || echo FAILED); slowest turn so far $turn ms; ms: $(longest "$name")"
    status=0
  done
done
work after 10000 2
end_work after
echo "afterwards: slowest turn $(slowest_ms) ms; ms: $(longest after)"
ask status >"$out/status.txt" 2>&1
stop_daemon
stop_mps
[ "$status" = 0 ] || failed=1
echo "a full GPU: $([ $failed = 0 ] && echo "all as it must be" || echo "FAILED: see above")"
exit $failed
