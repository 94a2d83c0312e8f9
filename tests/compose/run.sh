#!/usr/bin/env bash
# AllReduce between containers that share only the sockets' folder; a killed client; a killed and restarted daemon.
#   tests/compose/run.sh [build folder]     exit 77 where no container can run
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:-$here/../../build/dev}" && pwd)
project=arcommd-test-$$
compose=
clean_up() {
  stop_all_ranks
  [ -z "$compose" ] || $compose -p "$project" -f "$here/docker-compose.yml" down -v -t 5
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

say "putting the binaries of $build on top"
stage_install "$build"
install -D "$build/tests/support/arcomm_test_client" "$work/context/stage/usr/local/bin/arcomm_test_client"
docker build -q -t "$project" -f "$here/Dockerfile.prebuilt" "$work/context" >"$work/build.log" 2>&1 || { tail -n 5 "$work/build.log"; fail "docker build"; }

export ARCOMM_IMAGE=$project
say "starting one daemon and three clients with $compose"
$compose -p "$project" -f "$here/docker-compose.yml" up -d --no-build >"$work/up.log" 2>&1 || { tail -n 5 "$work/up.log"; fail "compose up"; }
container() { $compose -p "$project" -f "$here/docker-compose.yml" ps -q "$1"; }
node=$(container arcommd)
for i in 0 1 2; do client[i]=$(container "client$i"); done

arctl() { timeout 20 docker exec "$node" arctl "$@"; }
wait_ready() {
  for _ in $(seq 100); do arctl status >/dev/null 2>&1 && return; sleep 0.2; done
  docker logs --tail 20 "$node" >&2 || true
  fail "the daemon does not answer"
}
wait_ready

namespaces() { docker exec "$1" sh -c 'readlink /proc/self/ns/pid /proc/self/ns/ipc' | sort | tr '\n' ' '; }
[ "$(for c in "$node" "${client[@]}"; do namespaces "$c"; echo; done | sort -u | wc -l)" = 4 ] || fail "the containers share namespaces"

say "AllReduce across three containers"
for i in 0 1 2; do start_rank "$i"; done
all_ok "init 20000"
form c0
for memory in heap alloc shared; do
  all_ok "allreduce c0 300007 float32 sum mem=$memory"
  all_ok "allreduce c0 300007 bfloat16 avg mem=$memory place=in"
done
all_ok "allreduce c0 1000 int64 max n=300"

say "a client container is killed in the middle of an operation"
tell 0 "allreduce c0 1000 float32 sum"
tell 1 "allreduce c0 1000 float32 sum"
sleep 0.3
docker kill "${client[2]}" >/dev/null
for i in 0 1; do
  hear "$i"
  [ "$reason" = 6 ] && [ "$rank" = 2 ] || fail "client $i was told code $code reason $reason rank $rank: $message"
  [ "$took" -lt 8000 ] || fail "client $i heard of it after $took ms"
done
stop_rank 2
for _ in $(seq 50); do [ "$(arctl sessions --json | grep -o '"session":' | wc -l)" = 2 ] && break; sleep 0.1; done
[ "$(arctl sessions --json | grep -o '"session":' | wc -l)" = 2 ] || fail "the killed client's session is still there"

say "it comes back in a new PID namespace and takes its rank again"
docker start "${client[2]}" >/dev/null
start_rank 2
expect_ok 2 "init 20000"
form c1
all_ok "allreduce c1 100003 float32 sum mem=alloc"

say "the daemon's container is killed and started again"
for i in 0 1 2; do tell "$i" "loop c1 50000 float32 sum n=100000000"; done
sleep 0.5
docker kill "$node" >/dev/null
for i in 0 1 2; do
  hear "$i"
  [ "$reason" = 12 ] || fail "client $i was told code $code reason $reason: $message"
done
docker start "$node" >/dev/null
wait_ready
all_ok "rebuild c1"
all_ok "allreduce c1 100003 float32 sum mem=alloc"

say "the daemon's container is restarted in good order"
docker restart -t 20 "$node" >/dev/null
wait_ready
all_ok "rebuild c1"
all_ok "allreduce c1 1000 float16 max n=50"
all_ok finalize
[ "$(docker inspect -f '{{.State.OOMKilled}}' "$node")" = false ] || fail "the daemon ran out of memory"
if docker logs "$node" 2>&1 | grep -E 'AddressSanitizer|terminate called|runtime error' >&2; then fail "the daemon's log holds a defect report"; fi
say "passed"
