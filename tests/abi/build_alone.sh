#!/usr/bin/env bash
# usage: build_alone.sh <cmake> <build tree> <source tree> <check-plugin program> \
#                       <run_seat program> <C++ compiler>
# Installs the SDK into a fresh prefix, copies each folder of plugins/ out of the tree, builds the copies against the
# package alone, and runs check-plugin on the results with every mini model that they claim. Then the same for a copy of
# qwen3 under another name and architecture, with the mini model re-tagged: the host, built before, serves it with the same logits.
set -euo pipefail
cmake=$1 build=$2 source=$3 check=$4 run_seat=$5 cxx=$6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --component sdk --prefix "$work/sdk" > "$work/log" || { cat "$work/log"; exit 1; }
[ -e "$work/sdk/include/bloomery-sdk/bloomery/bloomery.hpp" ]
[ ! -e "$work/sdk/include/bloomery-sdk/runtime" ]

build_copy() {  # build_copy <folder with a CMakeLists.txt> <name of the build folder>
  "$cmake" -G Ninja -S "$1" -B "$work/$2" -DCMAKE_PREFIX_PATH="$work/sdk" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_BUILD_TYPE=Release > "$work/log" 2>&1 && "$cmake" --build "$work/$2" > "$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
}

checked=0
for folder in "$source"/plugins/*/; do
  seat=$(basename "$folder")
  cp -r "$folder" "$work/$seat"
  build_copy "$work/$seat" "alone-$seat"
  for built in "$work/alone-$seat"/plugins/*/*.so; do
    manifest=$(dirname "$built")/$(basename "$(dirname "$built")").json
    for mini in "$source"/tests/data/mini/*/; do
      architecture=$(basename "$mini")
      grep -q "\"$architecture\"" "$manifest" && [ -e "$mini/model.gguf" ] || continue
      "$check" "$built" --model "$mini/model.gguf"
      checked=$((checked + 1))
    done
  done
done
[ "$checked" -ge 2 ]
model=$source/tests/data/mini/qwen3moe/model.gguf

# The last line of the seat's CMakeLists.txt names seat and architecture.
cp -r "$source/plugins/qwen3" "$work/copy"
sed -i 's/^bloomery_add_qwen3(qwen3 .*)$/bloomery_add_qwen3(copycat copycatmoe)/' "$work/copy/CMakeLists.txt"
grep -q 'copycat copycatmoe' "$work/copy/CMakeLists.txt"
build_copy "$work/copy" renamed
python3 "$source/tests/abi/retag.py" "$model" qwen3moe copycatmoe "$work/copycat.gguf"
"$check" "$work/renamed/plugins/copycat/libcopycat.so" --model "$work/copycat.gguf"

"$run_seat" "$work/alone-qwen3/plugins" "$model" > "$work/original.txt"
"$run_seat" "$work/renamed/plugins" "$work/copycat.gguf" > "$work/renamed.txt"
[ "$(wc -l < "$work/original.txt")" -gt 1000 ]
cmp "$work/original.txt" "$work/renamed.txt" && echo "the renamed copy gives the same logits"
# A host that knew the architecture would take the original for the re-tagged file.
if "$run_seat" "$work/alone-qwen3/plugins" "$work/copycat.gguf" 2> "$work/refusal"; then
  echo "the re-tagged file was served without its plugin"; exit 1
fi
grep -q "no plugin claims" "$work/refusal"
