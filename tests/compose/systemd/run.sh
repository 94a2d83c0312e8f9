#!/usr/bin/env bash
# systemctl start|reload|stop arcommd, socket activation, restart after SIGKILL, watchdog: under a real systemd.
#   tests/compose/systemd/run.sh [build folder]     exit 77 where no such container can run
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$here/../../build/dev}" && pwd)
name=arcommd-systemd-test-$$
clean_up() { docker rm -f "$name"; docker image rm -f "$name"; }
# shellcheck source=tests/compose/docker.sh
. "$here/docker.sh"

ensure_docker
ensure_base_image
ensure_containers
build_libraries
say "installing $build into an image with systemd"
stage_install "$build"
install -D "$build/tests/support/arcomm_test_client" "$work/context/stage/usr/local/bin/arcomm_test_client"
docker build -q -t "$name" -f "$here/systemd/Dockerfile" "$work/context" >"$work/build.log" 2>&1 || { tail -n 5 "$work/build.log"; fail "docker build"; }

# --privileged is refused on some machines; this is what systemd needs.
docker run -d --name "$name" --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
  --tmpfs /run --tmpfs /run/lock --tmpfs /tmp -v /sys/fs/cgroup:/sys/fs/cgroup:rw --cgroupns=host \
  -e container=docker "$name" >"$work/run.log" 2>&1 || { tail -n 3 "$work/run.log"; skip "this docker cannot run systemd"; }
inside() { timeout 60 docker exec "$name" "$@"; }
shell() { inside bash -c "$*"; }
for _ in $(seq 150); do
  state=$(inside systemctl is-system-running 2>/dev/null || true)
  case "$state" in running | degraded) break ;; esac
  sleep 0.2
done
case "$state" in running | degraded) ;; *) skip "systemd does not come up in a container here: $state" ;; esac

property() { inside systemctl show -p "$1" --value arcommd; }
failed() { inside journalctl -u arcommd --no-pager -n 30 >&2 || true; fail "$*"; }
active() { [ "$(property ActiveState)" = active ]; }
until_true() {  # seconds, command...
  local tries=$(($1 * 5))
  shift
  for _ in $(seq "$tries"); do "$@" && return; sleep 0.2; done
  return 1
}
# Two client processes of the group, through the sockets that systemd made.
all_reduce() {
  shell 'cat > /tmp/ranks.sh <<"RANKS"
set -e
id=$(echo id | arcomm_test_client | cut -d" " -f5)
for r in 0 1; do printf "init 20000\ncomm c 2 $id $r\nallreduce c 10007 float32 sum mem=alloc\nfinalize\n" | arcomm_test_client > /tmp/rank$r & done
wait
! cat /tmp/rank0 /tmp/rank1 | grep -v "^0 "
[ "$(cat /tmp/rank0 /tmp/rank1 | wc -l)" = 8 ]
RANKS
timeout 40 bash /tmp/ranks.sh' || failed "AllReduce after: $*"
}

say "systemctl start arcommd"
inside systemctl start arcommd || failed "systemctl start"
active || failed "not active after start"
[ "$(property StatusText)" != "" ] || failed "no status text"
say "status: $(property StatusText)"
[ "$(shell 'ps -o user= -p $(systemctl show -p MainPID --value arcommd)')" = arcommd ] || failed "does not run as arcommd"
[ "$(shell 'stat -c %a:%U:%G /run/arcommd/client.sock /run/arcommd/admin.sock /run/arcommd/fd.sock' | tr '\n' ' ')" = \
  "660:arcommd:arcomm 660:arcommd:arcomm-admin 660:arcommd:arcomm " ] || failed "sockets: $(shell 'ls -l /run/arcommd')"
all_reduce start
inside arctl status >/dev/null || [ $? = 6 ] || failed "arctl status"

say "systemctl reload arcommd: a good file"
config=$(inside arctl status --json | grep -o '"config_file":"[^"]*"' | cut -d'"' -f4)
config=${config:-/etc/arcommd/arcommd.toml}
shell "mkdir -p $(dirname "$config"); printf '[op]\ndefault_timeout_ms = 12345\n' >> $config"
inside systemctl reload arcommd || failed "systemctl reload"
has_setting() { inside arctl status --json | grep "$1" >/dev/null; }
until_true 5 has_setting 12345 || failed "the reload did not take"
say "systemctl reload arcommd: a bad file"
shell "echo 'defautl_timeout_ms = 1' >> $config"
inside systemctl reload arcommd || true
# grep reads to the end (no -q): under pipefail a writer that it leaves early, by SIGPIPE, would fail the whole pipe.
in_journal() { inside journalctl -u arcommd --no-pager -o cat | grep "$1" >/dev/null; }
until_true 5 in_journal defautl_timeout_ms || failed "the journal does not name the bad key"
until_true 5 active || failed "READY did not resume after a failed reload"
has_setting 12345 || failed "the bad file changed a setting"
shell "sed -i '\$d' $config"
all_reduce reload

say "SIGKILL: systemd restarts it, on the same sockets"
before=$(shell 'stat -c %i /run/arcommd/client.sock')
pid=$(property MainPID)
inside kill -KILL "$pid"
restarted() { active && [ "$(property MainPID)" != "$pid" ]; }
until_true 10 restarted || failed "not restarted after SIGKILL"
[ "$(property NRestarts)" = 1 ] || failed "NRestarts is $(property NRestarts)"
[ "$(shell 'stat -c %i /run/arcommd/client.sock')" = "$before" ] || failed "the sockets were made anew"
all_reduce SIGKILL

say "systemctl stop arcommd; the next client starts it again (socket activation)"
inside systemctl stop arcommd 2>/dev/null || failed "systemctl stop"
[ "$(property Result)" = success ] || failed "stop ended with $(property Result)"
[ "$(property ActiveState)" = inactive ] || failed "still $(property ActiveState) after stop"
all_reduce "socket activation"
active || failed "the client's connection did not start the service"

say "a frozen daemon is killed by the watchdog and restarted"
freeze='[Service]\nWatchdogSec=2\n'
if grep -q ARCOMM_FAILPOINT "$build/daemon/arcommd"; then
  freeze+='Environment=ARCOMM_FAILPOINT=worker.freeze ARCOMM_WATCHDOG_STALL_MS=500\n'
fi
shell "mkdir -p /run/systemd/system/arcommd.service.d; printf '$freeze' > /run/systemd/system/arcommd.service.d/freeze.conf"
inside systemctl daemon-reload
inside systemctl restart arcommd || failed "restart with a short watchdog"
pid=$(property MainPID)
sleep 5
[ "$(property MainPID)" = "$pid" ] || failed "the watchdog killed an idle daemon"
if grep -q ARCOMM_FAILPOINT "$build/daemon/arcommd"; then
  shell 'timeout 20 bash /tmp/ranks.sh' >/dev/null 2>&1 || true
else
  inside kill -STOP "$pid"
fi
until_true 15 restarted || failed "the watchdog did not restart it"
until_true 5 in_journal "Watchdog timeout" || failed "the journal does not say watchdog"
until_true 5 in_journal "Failed with result 'watchdog'" || failed "the result was not watchdog"
shell 'rm /run/systemd/system/arcommd.service.d/freeze.conf'
inside systemctl daemon-reload
inside systemctl restart arcommd || failed "restart after the watchdog"
all_reduce watchdog

say "systemctl stop, for good"
inside systemctl stop arcommd arcommd.socket arcommd-admin.socket arcommd-descriptors.socket || failed "systemctl stop"
shell '! ls /run/arcommd/*.sock 2>/dev/null' || failed "sockets were left: $(shell 'ls /run/arcommd')"
[ "$(inside systemctl is-failed arcommd || true)" = inactive ] || failed "the unit failed"
say "exposure: $(inside systemd-analyze security --no-pager arcommd.service 2>/dev/null | tail -n 1)"
say "passed"
