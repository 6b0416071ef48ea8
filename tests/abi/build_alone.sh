#!/usr/bin/env bash
# usage: build_alone.sh <cmake> <build tree> <source tree> <check-plugin program> \
#                       <run_seat program> <C++ compiler>
# Installs the SDK into a fresh prefix, copies plugins/qwen3 out of the tree, builds the copy against the
# package alone, and runs check-plugin on the result. Then the same for a copy under another name and
# architecture, with the mini model re-tagged: the host, built before, serves it with the same logits.
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

cp -r "$source/plugins/qwen3" "$work/qwen3"
build_copy "$work/qwen3" alone
model=$source/tests/data/mini/qwen3moe/model.gguf
"$check" "$work/alone/plugins/qwen3/libqwen3.so" --model "$model"

# The last line of the seat's CMakeLists.txt names seat and architecture.
cp -r "$source/plugins/qwen3" "$work/copy"
sed -i 's/^bloomery_add_qwen3(qwen3 .*)$/bloomery_add_qwen3(copycat copycatmoe)/' "$work/copy/CMakeLists.txt"
grep -q 'copycat copycatmoe' "$work/copy/CMakeLists.txt"
build_copy "$work/copy" renamed
python3 "$source/tests/abi/retag.py" "$model" qwen3moe copycatmoe "$work/copycat.gguf"
"$check" "$work/renamed/plugins/copycat/libcopycat.so" --model "$work/copycat.gguf"

"$run_seat" "$work/alone/plugins" "$model" > "$work/original.txt"
"$run_seat" "$work/renamed/plugins" "$work/copycat.gguf" > "$work/renamed.txt"
[ "$(wc -l < "$work/original.txt")" -gt 1000 ]
cmp "$work/original.txt" "$work/renamed.txt" && echo "the renamed copy gives the same logits"
# A host that knew the architecture would take the original for the re-tagged file.
if "$run_seat" "$work/alone/plugins" "$work/copycat.gguf" 2> "$work/refusal"; then
  echo "the re-tagged file was served without its plugin"; exit 1
fi
grep -q "no plugin claims" "$work/refusal"
