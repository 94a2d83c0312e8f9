#!/usr/bin/env bash
# What breaks on GPUs, and what clients and daemon must do then: cases of the fault matrix (tests/integration/README.md),
# a line for each. A case that this machine does not allow is "not possible here", and was not seen.
# Called by run.sh:   RANKS="2 4" run_faults.sh <folder for the results>     77: all is well that could be seen
set -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/programs
out=$(mkdir -p "$1/faults" && cd "$1/faults" && pwd)
rm -rf "${out:?}"/*  # what ranks of an earlier run said is not waited for
read -r -a ranks_here <<<"${RANKS:-2}"
most=${ranks_here[-1]}
export CUDA_MODULE_LOADING=EAGER
. "$here/daemon.sh"
# An allocation shall fail by what the GPU has, not by a quota.
settings=(--set quota.registered_bytes=1125899906842624)
failed=0
unseen=()
# What is done to a rank is done to the last one. 4 KB is in-stream, 32 MB is launched.
work=("$programs/fault_rank" work --sizes "4k,32m" --dtype f16)
limit=60 # of each client, seconds

now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); } # milliseconds

# case_of <number and words>, after what belongs to it: status says how it went.
case_of() {
  if [ "$status" = 0 ]; then echo "case $*: ok"; else echo "case $*: FAILED"; fi
  [ "$status" = 0 ] || failed=1
  status=0
}
not_possible() {
  unseen+=("$1")
  echo "case $1: not possible here: $2"
}

until_said() { # until_said <words> <name> <ranks> <how many logs>
  for _ in $(seq 400); do
    [ "$(grep -lE "$1" "$out/$2-$3"-*.log 2>/dev/null | wc -l)" -ge "$4" ] && return 0
    sleep 0.05
  done
  fail "$2: the ranks did not say \"$1\" within 20 s"
  tail -qn 3 "$out/$2-$3"-*.log
  return 1
}
# Ranks that recover say so themselves: how many of them did?
works_again() { # works_again <name> <ranks> <how many>
  local count
  count=$(grep -l 'works again' "$out/$1-$2"-*.log 2>/dev/null | wc -l)
  [ "$count" = "$3" ] || fail "$1: $count ranks work again, not $3"
  again=$(said "$1" "$2" 'works again')
}
said() { tail -n 40 "$out/$1-$2-0.log" | grep -E "$3" | tail -n 1; }
# The signal goes to the rank itself, below its `timeout`.
to_rank() { pkill "-$1" -P "${pids[$2]}" || fail "there is no rank $2 to send $1 to"; }
kill_daemon() {
  pkill -KILL -P "$daemon" || fail "there is no arcommd to kill"
  wait "$daemon" 2>/dev/null
  daemon=
}
descriptors() { # of arcommd
  local all=("/proc/$(pgrep -P "$daemon")/fd/"*)
  echo ${#all[@]}
}

served() { # served <number>: else the case is lost
  alive && return 0
  case_of "$1: no daemon to see it by"
  return 1
}

# What systemd does for Restart=on-failure. MPS may first have to get rid of those that were its clients.
restart_daemon() {
  local begin took tries=0
  restarted="not served again"
  begin=$(now)
  while (($(now) - begin < 20000)); do
    tries=$((tries + 1))
    if try_daemon "${settings[@]}" "$@"; then
      took=$(($(now) - begin))
      restarted="served again $took ms after it had ended, $tries starts"
      ((took <= 20000)) || fail "arcommd serves only after $took ms"
      return 0
    fi
    pkill -KILL -P "$daemon" 2>/dev/null
    wait "$daemon"
    daemon=
    sleep 0.2
  done
  tail -n 5 "$out/arcommd.log"
  return 1
}

# The daemon has lost a GPU: it says so, is through with it within half a second, and ends with status 1. What is
# between is the driver's, which takes the process's memory back. log_from: the lines there were before.
expect_loss() { # expect_loss <milliseconds to the end of the process>
  local line seen ended code through
  for _ in $(seq 500); do
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.02
  done
  ended=$(now)
  if kill -0 "$daemon" 2>/dev/null; then
    fail "arcommd goes on with a GPU in error"
    pkill -KILL -P "$daemon"
  fi
  wait "$daemon"
  code=$?
  daemon=
  [ $code = 1 ] || fail "arcommd ended with status $code"
  line=$(grep -m 1 -E ' has failed: |resident kernel does not' < <(tail -n "+$((log_from + 1))" "$out/arcommd.log")) ||
    fail "arcommd did not say why it ended"
  seen=$(date -d "${line%% *}" +%s%3N 2>/dev/null) || seen=0
  loss="ended with status $code, $((ended - seen)) ms after it saw: ${line#* error }"
  ((ended - seen < $1)) || fail "arcommd ended too late: $loss"
  through=$(grep -E ' stopped$' < <(tail -n "+$((log_from + 1))" "$out/arcommd.log") | head -n 1)
  through=$(date -d "${through%% *}" +%s%3N 2>/dev/null) || through=0
  ((through >= seen && through - seen < 500)) || fail "arcommd was through with it only after $((through - seen)) ms"
  grep -q 'a GPU is lost: ending' < <(tail -n "+$((log_from + 1))" "$out/arcommd.log") || fail "no word of the loss in the log"
}
mark_log() { log_from=$(wc -l <"$out/arcommd.log"); }

# ---- without MPS: a context in error is its process's own ----
export CUDA_MPS_PIPE_DIRECTORY=$folder/no-mps

daemon_breaks() {
  : >"$out/arcommd.log"
  if ! grep -q gpu.fault "$programs/arcommd"; then
    not_possible 10 "this build of arcommd has no failpoints"
    start_daemon "${settings[@]}" --set gpu.mps=off
    return
  fi
  mark_log
  ARCOMM_FAILPOINT=gpu.fault start_daemon "${settings[@]}" --set gpu.mps=off --set gpu.algorithm=stream || return
  LIMIT=$limit start_ranks daemon-breaks "$most" "${work[@]}" --timeout-ms 2000 --expect gpu-lost --recover
  until_said '^working' daemon-breaks "$most" "$most"
  expect_loss 1000
  restart_daemon --set gpu.mps=off || fail "no daemon within 20 s"
  end_ranks daemon-breaks "$most"
  works_again daemon-breaks "$most" "$most"
  case_of "10: a kernel of the daemon reads nobody's memory: $loss; $restarted; $again"
}

client_breaks_alone() {
  served 10a || return
  LIMIT=$limit start_ranks breaks-alone "$most" "${work[@]}" --timeout-ms 2000 --expect peer-broken --recover --culprit $((most - 1)) \
    --culprit-does break
  wait "${pids[-1]}" || fail "the rank that broke its context: status $?"
  replace_last breaks-alone "$most" 2000
  end_ranks breaks-alone "$most"
  works_again breaks-alone "$most" $((most - 1))
  alive
  case_of "10a: a client breaks its context, without MPS: $(said breaks-alone "$most" ' ms: '); $again"
}

# A new process in the last rank's place, in a namespace of its own where those before had one.
replace_last() { # replace_last <name> <ranks> <timeout in ms> [what goes before the program]
  local name=$1 ranks=$2 timeout_ms=$3
  shift 3
  mv "$out/$name-$ranks-$((ranks - 1)).log" "$out/$name-$ranks-$((ranks - 1))-before.log"
  timeout -k 5 "$limit" "$@" "$programs/fault_rank" join --sizes "${SIZES:-4k,32m}" --memory "${MEMORY:-arc}" --dtype f16 --timeout-ms "$timeout_ms" \
    --rank $((ranks - 1)) --ranks "$ranks" --id-file "$folder/id-$name-$ranks" >"$out/$name-$ranks-$((ranks - 1)).log" 2>&1 &
  pids[ranks - 1]=$!
}

# ---- with MPS ----
client_stops() { # one pair is stopped, another works on the same GPUs
  served 3 || return
  local ranks=$1 stopped
  LIMIT=$limit start_ranks stops "$ranks" "${work[@]}" --timeout-ms 1000 --expect peer-late --recover --culprit $((ranks - 1)) \
    --culprit-expects self-late --stopped-ms 3000
  stopped=("${pids[@]}")
  until_said '^working' stops "$ranks" "$ranks"
  LIMIT=$limit start_ranks beside "$ranks" "${work[@]}" --timeout-ms 1000 --seconds 4
  local beside=("${pids[@]}")
  until_said '^working' beside "$ranks" "$ranks"
  pids=("${stopped[@]}")
  to_rank STOP $((ranks - 1))
  sleep 1.6
  to_rank CONT $((ranks - 1))
  end_ranks stops "$ranks"
  works_again stops "$ranks" "$ranks"
  pids=("${beside[@]}")
  end_ranks beside "$ranks"
  alive
  case_of "3: rank $((ranks - 1)) of $ranks was stopped: $(said stops "$ranks" ' ms: '); $again; others on the same GPUs:" \
    "$(said beside "$ranks" undisturbed)"
}

cases_by_ranks() { # what the ranks do to themselves
  served "21, 38, 39, 22, 30" || return
  local ranks=$1 before after number
  before=$(descriptors)
  # Many communicators one after the other: a stream that waits must not share a channel with one of another.
  CUDA_DEVICE_MAX_CONNECTIONS=32 LIMIT=$limit run_ranks cases "$ranks" "$programs/fault_rank" cases --sizes 4k,32m --dtype f16 --timeout-ms 1000
  for number in "21, 38" 39 22 30 freed; do
    said cases "$ranks" "^case $number:" >/dev/null || fail "fault $number was not come to"
    case_of "$number: $(said cases "$ranks" "^case $number:" | sed 's/^case [^:]*: //')"
  done
  for _ in $(seq 40); do
    after=$(descriptors)
    [ "$after" -le $((before + 2)) ] && break
    sleep 0.1
  done
  [ "$after" -le $((before + 2)) ] || fail "arcommd has $after descriptors and had $before"
  alive
  case_of "30: descriptors of arcommd before these and after: $before, $after"
}

# Each rank in a PID namespace of its own, which a container is; one of them is killed, and comes back in another.
namespaces() {
  isolate=()
  local way
  for way in "" "--user --map-root-user"; do
    # shellcheck disable=SC2086
    timeout 5 unshare $way --pid --fork --mount-proc --kill-child=SIGKILL true 2>"$out/unshare.txt" || continue
    # shellcheck disable=SC2206
    isolate=(unshare $way --pid --fork --mount-proc --kill-child=SIGKILL)
    return 0
  done
  return 1
}
client_dies() {
  local ranks=$1 last=$(($1 - 1)) number=2
  served 2 || return
  LIMIT=$limit start_ranks dies "$ranks" "${isolate[@]}" "${work[@]}" --timeout-ms 3000 --expect peer-lost --culprit "$last" --recover
  until_said '^working' dies "$ranks" "$ranks"
  sleep 0.3
  to_rank KILL "$last"
  wait "${pids[$last]}" 2>/dev/null
  until_said ' ms: ' dies "$ranks" "$last"
  replace_last dies "$ranks" 3000 "${isolate[@]}"
  end_ranks dies "$ranks"
  works_again dies "$ranks" "$last"
  alive
  [ ${#isolate[@]} = 0 ] || number="2, 41"
  case_of "$number: rank $last of $ranks is killed${isolate[*]:+, all in PID namespaces of their own}: $(said dies "$ranks" ' ms: '); $again"
}

# In the middle of 1 GB of cudaMalloc's memory, which the daemon's kernels have open by its handle; others work beside.
client_dies_with_its_memory() {
  served 2a || return
  local ranks=$1 last=$(($1 - 1)) dying
  local big=("$programs/fault_rank" work --sizes "4k,1g" --dtype f16 --memory cuda)
  LIMIT=$limit start_ranks dies-memory "$ranks" "${big[@]}" --timeout-ms 3000 --expect peer-lost --culprit "$last" --recover
  dying=("${pids[@]}")
  until_said '^working' dies-memory "$ranks" "$ranks"
  LIMIT=$limit start_ranks beside-memory "$ranks" "${work[@]}" --timeout-ms 3000 --seconds 4
  local beside=("${pids[@]}")
  until_said '^working' beside-memory "$ranks" "$ranks"
  pids=("${dying[@]}")
  sleep 0.3
  to_rank KILL "$last"
  wait "${pids[$last]}" 2>/dev/null
  until_said ' ms: ' dies-memory "$ranks" "$last"
  SIZES=4k,1g MEMORY=cuda replace_last dies-memory "$ranks" 3000
  end_ranks dies-memory "$ranks"
  works_again dies-memory "$ranks" "$last"
  pids=("${beside[@]}")
  end_ranks beside-memory "$ranks"
  alive
  case_of "2a: rank $last of $ranks is killed in the middle of 1 GB of cudaMalloc's memory:" \
    "$(said dies-memory "$ranks" ' ms: '); $again; others on the same GPUs: $(said beside-memory "$ranks" undisturbed)"
}

# Without MPS the clients' contexts are their own: the same processes go on.
daemon_dies_alone() {
  served "6, 7" || return
  LIMIT=$limit start_ranks daemon-dies-alone "$most" "${work[@]}" --timeout-ms 2000 --expect daemon-lost --recover
  until_said '^working' daemon-dies-alone "$most" "$most"
  sleep 0.5
  kill_daemon
  restart_daemon --set gpu.mps=off || fail "no daemon within 20 s"
  end_ranks daemon-dies-alone "$most"
  works_again daemon-dies-alone "$most" "$most"
  case_of "6, 7: arcommd is killed, without MPS: $(said daemon-dies-alone "$most" ' ms: '); $restarted; $again"
}

daemon_stops() { # what an upgrade does
  served 8 || return
  local begin code
  LIMIT=$limit start_ranks daemon-stops "$most" "${work[@]}" --timeout-ms 1000 --expect daemon-stops --recover
  until_said '^working' daemon-stops "$most" "$most"
  sleep 0.5
  begin=$(now)
  kill -TERM "$daemon"
  wait "$daemon"
  code=$?
  daemon=
  [ $code = 0 ] || fail "arcommd ended with status $code"
  stopped="ended after $(($(now) - begin)) ms"
  restart_daemon || fail "no daemon within 20 s"
  end_ranks daemon-stops "$most"
  works_again daemon-stops "$most" "$most"
  case_of "8: arcommd is told to stop, and $stopped: $(said daemon-stops "$most" ' ms: '); $restarted; $again"
}

# Under MPS kernels of a process that is killed take the GPU with them: clients hear of it, and MPS serves again when
# they have ended.
daemon_dies() {
  served "6, 7" || return
  LIMIT=$limit start_ranks daemon-dies "$most" "${work[@]}" --timeout-ms 1000 --expect gpu-lost
  until_said '^working' daemon-dies "$most" "$most"
  sleep 0.5
  kill_daemon
  end_ranks daemon-dies "$most"
  restart_daemon || fail "no daemon within 20 s"
  LIMIT=$limit run_ranks after-death "$most" "$programs/client_rank" --verify --sizes 4k,32m
  case_of "6, 7: arcommd is killed: $(said daemon-dies "$most" ' ms: '); $restarted; new processes are served"
}

client_breaks_all() { # MPS: an error of one is one of all who share the GPU, arcommd too
  served 10b || return
  mark_log
  LIMIT=$limit start_ranks breaks-all "$most" "${work[@]}" --timeout-ms 1000 --expect gpu-lost --culprit $((most - 1)) --culprit-does break
  until_said '^working' breaks-all "$most" "$most"
  expect_loss 3000 # MPS lets go of the processes of a GPU in error one after the other
  end_ranks breaks-all "$most"
  if ! restart_daemon; then
    fail "MPS does not recover by itself; it is started anew for the rest"
    stop_mps
    start_mps
    restart_daemon || fail "no daemon within 20 s"
  fi
  LIMIT=$limit run_ranks after "$most" "$programs/client_rank" --verify --sizes 4k,32m
  case_of "10b: a client breaks its context, under MPS: arcommd $loss; $restarted; $(said breaks-all "$most" ' ms: ')"
}

begin=$(now)
daemon_breaks
client_breaks_alone
daemon_dies_alone
if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then stop_daemon; fi
start_mps
start_daemon "${settings[@]}" || exit 1
namespaces || not_possible 41 "no rights to make PID namespaces ($(head -n 1 "$out/unshare.txt"))"
for ranks in "${ranks_here[@]}"; do
  client_stops "$ranks"
  cases_by_ranks "$ranks"
  client_dies "$ranks"
  client_dies_with_its_memory "$ranks"
done
daemon_stops
daemon_dies
client_breaks_all
if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then stop_daemon; fi
stop_mps
[ "$status" = 0 ] || failed=1
echo "faults on GPUs: $((($(now) - begin) / 1000)) s; $([ "$failed" = 0 ] && echo "all that was seen is right" || echo "FAILED: see above")$(
  [ ${#unseen[@]} = 0 ] || echo "; not seen here: ${unseen[*]}"
)"
[ $failed = 0 ] || exit 1
[ ${#unseen[@]} = 0 ] || exit 77
