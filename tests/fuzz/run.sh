#!/usr/bin/env bash
# Runs every fuzz target of a build over its kept inputs and then on new ones, the given seconds of one core in all.
#   tests/fuzz/run.sh build/asan 60
# A finding ends with the input that made it, in the current folder: make it a named unit test, then fix it.
set -euo pipefail
build=$(cd "${1:?the build folder}" && pwd)
seconds=${2:-60}
corpus=$(cd "$(dirname "${BASH_SOURCE[0]}")/corpus" && pwd)
targets=("$corpus"/*)
each=$((seconds / ${#targets[@]} + 1))

fuzz() { # fuzz <kept inputs>: one target; its lines are printed together
  local kept=$1 name found log
  name=$(basename "$kept")
  found=$(mktemp -d)
  log=$(mktemp)
  # A message of the program under test is no finding; libFuzzer's own last lines are what counts.
  if ! "$build/tests/fuzz/$name" -max_total_time="$each" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 "$found" "$kept" \
    >"$log" 2>&1; then
    printf '%s: a finding\n%s\n' "$name" "$(tail -n 60 "$log")"
    return 255  # xargs begins no further one
  fi
  printf '%s: %d s\n%s\n' "$name" "$each" "$(grep -E 'number_of_executed_units|new_units_added' "$log")"
  rm -rf "$found" "$log"
}
export -f fuzz
export build each

# Each is one thread: as many at a time as there are cores.
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'set -euo pipefail; fuzz "$1"' fuzz
printf '%d fuzz targets, no finding\n' "${#targets[@]}"
