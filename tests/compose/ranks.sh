# Sourced by the tests in which a scripted client runs in each of several containers, told and heard over a pair of
# pipes. Needs docker.sh; callers fill client[i], the containers, by number.
rank_pids=()

stop_all_ranks() {
  local pid
  for pid in "${rank_pids[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; done
}
start_rank() {
  local i=$1
  rm -f "$work/in$i" "$work/out$i"
  mkfifo "$work/in$i" "$work/out$i"
  docker exec -i "${client[i]}" arcomm_test_client <"$work/in$i" >"$work/out$i" 2>"$work/err$i" &
  rank_pids[i]=$!
  exec {to[i]}>"$work/in$i" {from[i]}<"$work/out$i"
}
stop_rank() { exec {to[$1]}>&- {from[$1]}<&-; wait "${rank_pids[$1]}" 2>/dev/null || true; rank_pids[$1]=; }
tell() { echo "$2" >&"${to[$1]}"; }
# Sets code, reason, rank, took, value, message; the reply comes within 40 s or the test fails.
hear() { read -r -t 40 code reason rank took value message <&"${from[$1]}" || fail "no reply from client $1: $(cat "$work/err$1")"; }
expect_ok() { tell "$1" "$2"; hear "$1"; [ "$code" = 0 ] || fail "client $1, $2: code $code reason $reason: $message"; }
# Of all clients, or of those named behind the verb: the verb is given to all before anyone is heard.
all_ok() {
  local verb=$1 i
  shift
  local who=("$@")
  [ "${#who[@]}" != 0 ] || who=("${!client[@]}")
  for i in "${who[@]}"; do tell "$i" "$verb"; done
  for i in "${who[@]}"; do hear "$i"; [ "$code" = 0 ] || fail "client $i, $verb: code $code reason $reason: $message"; done
}
# NAME [CLIENT...]: a communicator of these clients, in their order.
form() {
  local name=$1 number=0 i
  shift
  local who=("$@")
  [ "${#who[@]}" != 0 ] || who=("${!client[@]}")
  expect_ok "${who[0]}" id
  local id=$value
  for i in "${who[@]}"; do tell "$i" "comm $name ${#who[@]} $id $((number++))"; done
  for i in "${who[@]}"; do hear "$i"; [ "$code" = 0 ] || fail "client $i joins $name: code $code reason $reason: $message"; done
}
