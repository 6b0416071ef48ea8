#!/usr/bin/env bash
# usage: abidiff_test.sh <source tree>
# sdk/abi/abidiff.sh sees no difference between the SDK and itself, and sees each of three changes to a copy.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/sdk/abi/abidiff.sh" "$source/sdk/include" "$source/sdk/include" | tee "$work/same"
grep -q "no difference" "$work/same"

differs() {  # differs <file> <sed expression> <what the report must say>
  rm -rf "$work/new"
  cp -r "$source/sdk/include" "$work/new"
  sed -i "$2" "$work/new/bloomery/$1"
  ! cmp -s "$source/sdk/include/bloomery/$1" "$work/new/bloomery/$1"
  if "$source/sdk/abi/abidiff.sh" "$source/sdk/include" "$work/new" > "$work/report"; then
    echo "not seen: $2"; exit 1
  fi
  grep -q "$3" "$work/report" || { cat "$work/report"; exit 1; }
}
differs plugin.h 's/^  int32_t draft_rows_max;$/  int64_t draft_rows_max;/' "draft_rows_max"
differs seat.h 's/^  uint64_t window; .*$/&\n  uint64_t extra;/' "they have one version"
differs chat.h 's/^  double top_p;$/  float top_p;/' "top_p"
echo "seen: each change"
