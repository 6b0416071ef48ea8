#!/usr/bin/env bash
# usage: abidiff.sh OLD NEW [PLUGIN FILE.so MODEL]…
# Compares the plugin ABI of two SDKs, each a folder with the headers (sdk/include, or include/bloomery-sdk
# of an installed one), by abidiff of abigail-tools. Exit code 0: no difference; 1: one, and it is printed.
#   - While the major is 0 any difference asks for another minor, so the script refuses two SDKs that differ
#     and call themselves by one version.
#   - From 1.0 on members are only appended: a difference that is not an addition is refused. Binaries of every
#     release are kept from 1.0 on (none before): name one with its model after the two SDKs, and the new host's
#     check-plugin ($BLOOMERY, else bloomery on PATH) must pass it unrebuilt.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
old=$1 new=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

version() { sed -nE 's/^#define BL_ABI_(MAJOR|MINOR) ([0-9]+)$/\2/p' "$1/bloomery/base.h" | paste -sd.; }
surface() {  # surface <headers> <name>: a library whose debug information holds the types
  ${CC:-gcc} -g -fPIC -shared -fno-eliminate-unused-debug-types -I "$1" -o "$work/$2.so" "$here/surface.c"
}
surface "$old" old
surface "$new" new

code=0
abidiff --leaf-changes-only "$work/old.so" "$work/new.so" > "$work/report" || code=$?
# 1 and 2: the tool failed; 4: a difference; 8: one that breaks what was built before.
if [ $((code & 3)) -ne 0 ]; then cat "$work/report"; exit 70; fi
if [ "$code" -ne 0 ]; then
  cat "$work/report"
  echo "the ABI of $(version "$old") and that of $(version "$new") differ"
  if [ "$(version "$old")" = "$(version "$new")" ]; then
    echo "they have one version: raise BL_ABI_MINOR in sdk/include/bloomery/base.h"; exit 1
  fi
  if [ "$(version "$new" | cut -d. -f1)" != 0 ] && [ $((code & 8)) -ne 0 ]; then
    echo "what was built for $(version "$old") would break: members are only appended"; exit 1
  fi
fi
while [ $# -ge 3 ]; do
  echo "kept: $1"
  "${BLOOMERY:-bloomery}" check-plugin "$2" --model "$3"
  shift 3
done
[ "$code" -eq 0 ] && echo "no difference in the ABI $(version "$new")"
exit $((code != 0))
