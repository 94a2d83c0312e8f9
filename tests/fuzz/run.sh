#!/usr/bin/env bash
# Runs every fuzz target of a build over its kept inputs and then on new ones, the given seconds in all.
#   tests/fuzz/run.sh build/asan 60
# A finding ends with the input that made it, in the current folder: make it a named unit test, then fix it.
set -euo pipefail
build=$(cd "${1:?the build folder}" && pwd)
seconds=${2:-60}
corpus=$(cd "$(dirname "${BASH_SOURCE[0]}")/corpus" && pwd)
targets=("$corpus"/*)
each=$((seconds / ${#targets[@]} + 1))
passed=0
for kept in "${targets[@]}"; do
  name=$(basename "$kept")
  found=$(mktemp -d)
  printf '%s: %d s\n' "$name" "$each"
  log=$(mktemp)
  # A message of the program under test is no finding; libFuzzer's own last lines are what counts.
  "$build/tests/fuzz/$name" -max_total_time="$each" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 "$found" "$kept" \
    >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
  grep -E 'number_of_executed_units|new_units_added' "$log" || true
  rm -rf "$found" "$log"
  passed=$((passed + 1))
done
printf '%d fuzz targets, no finding\n' "$passed"
