# Sourced by the tests that need containers. Gets a docker daemon and the base image by what this machine has, and
# skips (exit 77, with the reason) where it has neither. Everything that was started is stopped again.
# Callers define clean_up; it runs before a docker daemon that was started here is stopped.
set -euo pipefail

base_image=debian:bookworm-slim
work=$(mktemp -d)
started_dockerd=

skip() { printf 'skipped: %s\n' "$*"; exit 77; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
say() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }

on_exit() {
  local status=$?
  trap - EXIT
  clean_up >"$work/clean.log" 2>&1 || true
  if [ -n "$started_dockerd" ]; then
    kill -TERM "$started_dockerd" 2>/dev/null || true
    for _ in $(seq 150); do kill -0 "$started_dockerd" 2>/dev/null || break; sleep 0.1; done
  fi
  rm -rf "$work"
  exit "$status"
}
trap on_exit EXIT

ensure_docker() {
  command -v docker >/dev/null || skip "there is no docker here (apt-get install docker.io)"
  timeout 20 docker info >/dev/null 2>&1 && return
  [ "$(id -u)" = 0 ] && command -v dockerd >/dev/null || skip "no docker daemon answers, and this user cannot start one"
  say "starting a docker daemon for this test"
  setsid dockerd >"$work/dockerd.log" 2>&1 &
  started_dockerd=$!
  for _ in $(seq 300); do
    timeout 5 docker info >/dev/null 2>&1 && return
    kill -0 "$started_dockerd" 2>/dev/null || { started_dockerd=; tail -n 3 "$work/dockerd.log"; skip "dockerd does not run on this machine"; }
    sleep 0.1
  done
  skip "dockerd did not answer within 30 s"
}

# Sets `compose`.
ensure_compose() {
  if docker compose version >/dev/null 2>&1; then compose="docker compose"
  elif command -v docker-compose >/dev/null; then compose="docker-compose"
  else skip "there is no docker compose here (apt-get install docker-compose)"; fi
}

ensure_base_image() {
  docker image inspect "$base_image" >/dev/null 2>&1 && return
  say "getting $base_image"
  timeout 120 docker pull -q "$base_image" >/dev/null 2>&1 && return
  [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || skip "$base_image cannot be pulled, and there is no debootstrap to make it"
  say "it cannot be pulled: making it with debootstrap"
  debootstrap --variant=minbase bookworm "$work/root" >"$work/debootstrap.log" 2>&1 || { tail -n 3 "$work/debootstrap.log"; skip "debootstrap failed"; }
  tar -C "$work/root" -c . | docker import - "$base_image" >/dev/null
  rm -rf "$work/root"
}

# Can this machine run a container at all? Some sandboxes accept everything up to here.
ensure_containers() {
  timeout 60 docker run --rm --network none "$base_image" true >"$work/run.log" 2>&1 || { tail -n 3 "$work/run.log"; skip "a container does not start here"; }
}

# stage_install BUILD: what `cmake --install` puts on a machine, in $work/context/stage.
stage_install() {
  local build=$1
  mkdir -p "$work/context"
  DESTDIR="$work/context/stage" cmake --install "$build" --strip >"$work/install.log" 2>&1 ||
    { tail -n 5 "$work/install.log"; fail "cmake --install"; }
}

# build_libraries: the first target of the users' Dockerfile; it copies nothing, so its context is empty.
build_libraries() {
  mkdir -p "$work/empty"
  say "building the libraries' image"
  docker build -q --target libraries -t arcommd-test-libraries -f "$here/Dockerfile" "$work/empty" >"$work/build.log" 2>&1 ||
    { tail -n 5 "$work/build.log"; grep -qiE 'resolve|connect|fetch' "$work/build.log" && skip "no Debian mirror within reach of a container"; fail "docker build --target libraries"; }
}
