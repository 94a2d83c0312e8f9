#!/usr/bin/env bash
# AllReduce across three daemons on a private network; a killed client, a killed, a frozen and a disconnected node.
#   tests/compose/nodes/run.sh [build folder]     exit 77 where no container can run
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$here/../../build/dev}" && pwd)
project=arcommd-nodes-$$
file=$here/nodes/docker-compose.yml
compose=
clean_up() {
  stop_all_ranks
  [ -z "$compose" ] || $compose -p "$project" -f "$file" down -v -t 5
  docker image rm -f "$project" >/dev/null
}
# shellcheck source=tests/compose/docker.sh
. "$here/docker.sh"
# shellcheck source=tests/compose/ranks.sh
. "$here/ranks.sh"

ensure_docker
ensure_compose
ensure_base_image
ensure_containers
build_libraries

say "putting the binaries of $build and a token on top"
stage_install "$build"
install -D "$build/tests/support/arcomm_test_client" "$work/context/stage/usr/local/bin/arcomm_test_client"
(umask 077 && head -c 32 /dev/urandom | base64 >"$work/context/net.token")
docker build -q -t "$project" -f "$here/nodes/Dockerfile" "$work/context" >"$work/build.log" 2>&1 || { tail -n 5 "$work/build.log"; fail "docker build"; }

export ARCOMM_IMAGE=$project
say "starting three daemons of two clients each with $compose"
$compose -p "$project" -f "$file" up -d --no-build >"$work/up.log" 2>&1 || { tail -n 5 "$work/up.log"; fail "compose up"; }
container() { $compose -p "$project" -f "$file" ps -q "$1"; }
for i in 0 1 2; do node[i]=$(container "node$i"); done
for i in 0 1 2 3 4 5; do client[i]=$(container "client$i"); done

arctl() { timeout 20 docker exec "${node[$1]}" arctl "${@:2}"; }
# NODE: it serves clients, and knows that the two others live.
await_node() {
  for _ in $(seq 150); do
    [ "$(arctl "$1" net --json 2>/dev/null | grep -o '"state": *"alive"' | wc -l)" = 2 ] && return
    sleep 0.2
  done
  arctl "$1" net >&2 || true
  docker logs --tail 20 "${node[$1]}" >&2 || true
  fail "node$1 does not know its two peers"
}
await_nodes() { for i in 0 1 2; do await_node "$i"; done; }
# CLIENT...: each hears within 8 s that its operation failed, as a rank died or its node could not be reached.
hear_failure() {
  for i in "$@"; do
    hear "$i"
    case "$reason" in 6 | 8) ;; *) fail "client $i was told code $code reason $reason rank $rank: $message" ;; esac
    [ "$took" -lt 8000 ] || fail "client $i heard of it after $took ms"
  done
}
await_nodes

say "AllReduce across three nodes"
for i in 0 1 2 3 4 5; do start_rank "$i"; done
all_ok "init 20000"
form c0
for memory in heap alloc shared; do
  all_ok "allreduce c0 300007 float32 sum mem=$memory"
  all_ok "allreduce c0 300007 bfloat16 avg mem=$memory place=in"
done
all_ok "allreduce c0 1 float16 sum n=300"
all_ok "allreduce c0 1000 int64 max n=300"
all_ok "allreduce c0 3000000 float32 sum mem=alloc n=3"

say "a communicator of one node beside one of all"
form local 2 3
all_ok "allreduce local 100003 float32 sum" 2 3

say "a client is killed in the middle of an operation"
for i in 0 1 2 3 4; do tell "$i" "allreduce c0 1000 float32 sum"; done
sleep 0.3
docker kill "${client[5]}" >/dev/null
for i in 0 1 2 3 4; do
  hear "$i"
  [ "$reason" = 6 ] && [ "$rank" = 5 ] || fail "client $i was told code $code reason $reason rank $rank: $message"
  [ "$took" -lt 8000 ] || fail "client $i heard of it after $took ms"
done
stop_rank 5
docker start "${client[5]}" >/dev/null
start_rank 5
expect_ok 5 "init 20000"
form c1
all_ok "allreduce c1 100003 float32 sum mem=alloc"

say "a daemon is killed; the others form a communicator without it, and with it when it is back"
for i in 0 1 2 3 4 5; do tell "$i" "loop c1 50000 float32 sum n=100000000"; done
sleep 0.5
docker kill "${node[1]}" >/dev/null
hear_failure 0 1 4 5
for i in 2 3; do hear "$i"; [ "$reason" = 12 ] || fail "client $i was told code $code reason $reason: $message"; done
form c2 0 1 4 5
all_ok "allreduce c2 100003 float32 sum" 0 1 4 5
docker start "${node[1]}" >/dev/null
await_nodes
all_ok "rebuild c1"
all_ok "allreduce c1 100003 float32 sum mem=alloc"

say "a daemon is frozen"
for i in 0 1 2 3; do tell "$i" "loop c1 50000 float32 sum n=100000000"; done
docker pause "${node[2]}" >/dev/null
hear_failure 0 1 2 3
docker unpause "${node[2]}" >/dev/null
await_nodes
form c3
all_ok "allreduce c3 100003 float32 sum mem=alloc"

say "a node loses its network, and gets it back"
for i in 0 1 2 3 4 5; do tell "$i" "loop c3 50000 float32 sum n=100000000"; done
sleep 0.3
docker network disconnect "${project}_fabric" "${node[0]}"
hear_failure 0 1 2 3 4 5
form alone 0 1
all_ok "allreduce alone 100003 float32 sum" 0 1
docker network connect --alias node0 "${project}_fabric" "${node[0]}"
await_nodes
form c4
all_ok "allreduce c4 100003 bfloat16 sum mem=alloc"
all_ok finalize

for i in 0 1 2; do
  [ "$(docker inspect -f '{{.State.OOMKilled}}' "${node[i]}")" = false ] || fail "node$i ran out of memory"
  if docker logs "${node[i]}" 2>&1 | grep -E 'AddressSanitizer|terminate called|runtime error' >&2; then fail "node$i's log holds a defect report"; fi
done
say "passed"
