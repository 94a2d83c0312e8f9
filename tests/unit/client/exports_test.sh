#!/bin/sh
# Every symbol that libarclient.so defines for others starts with arc, and all of the C ABI is among them.
set -eu
library=$1
header=$(dirname "$0")/../../../client/include/arclient.h
exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | grep -v '^ARC_0\.1$' | sort -u)
strangers=$(printf '%s\n' "$exported" | grep -v '^arc[A-Z]' || true)
if [ -n "$strangers" ]; then
  printf 'exported although not of the C ABI:\n%s\n' "$strangers" >&2
  exit 1
fi
declared=$(grep -o 'ARC_API [^(]*(' "$header" | grep -o 'arc[A-Za-z]*(' | tr -d '(' | sort -u)
[ "$(printf '%s\n' "$declared" | wc -l)" -ge 25 ] || { echo "found too few declarations in $header" >&2; exit 1; }
if [ "$declared" != "$exported" ]; then
  printf 'declared and not exported, or the reverse:\n' >&2
  printf '%s\n%s\n' "$declared" "$exported" | sort | uniq -u >&2
  exit 1
fi
# Nothing of gRPC, protobuf or nghttp2 may be asked of, or left to, the process that loads it.
if readelf -d "$library" | grep NEEDED | grep -Ei 'grpc|protobuf|absl|nghttp2'; then
  echo "needs a library that it must bring along hidden" >&2
  exit 1
fi
