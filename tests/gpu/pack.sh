#!/usr/bin/env bash
# Packs what tests/gpu/run.sh needs on a machine with a card into dist/bloomery-gpu.tar.xz: the programs of
# build/release with their libraries, the plugins, the demo model, the test programs and their data. Run from
# the repository root after `./dev build`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/release
out=dist/bloomery-gpu
rm -rf "$out" && mkdir -p "$out"/{bin,lib,plugins,share/bloomery/models,tests/data/mini,runtime/assets,tests/gpu}
for program in bloomery bloomery-serve gpu_test_kernels gpu_test_seat gpu_bench_drafts gpu_bench_kernels gpu_bench_residency gpu_bench_split gpu_bench_stages test_drafts test_oracle; do
  install "$build/bin/$program" "$out/bin/$program"
  strip "$out/bin/$program"
done
for seat in plugins/*/; do
  seat=$(basename "$seat")
  mkdir -p "$out/plugins/$seat"
  install "$build/plugins/$seat/lib$seat.so" "$build/plugins/$seat/"*.json "$out/plugins/$seat/"
done
install -m 644 runtime/assets/seedling-Q4_K_M.gguf "$out/runtime/assets/"
# Twice rather than a link: what carries the folder to a card may drop links.
install -m 644 runtime/assets/seedling-Q4_K_M.gguf "$out/share/bloomery/models/"
cp -r tests/data/mini/qwen3moe tests/data/mini/qwen35moe tests/data/mini/mimo2 "$out/tests/data/mini/"
cp -r tests/data/seedling "$out/tests/data/"
install tests/gpu/run.sh tests/gpu/serve_check.py tests/gpu/split_check.py "$out/tests/gpu/"
glibc='^(ld-linux.*|libc|libm|libdl|librt|libpthread|linux-vdso|libstdc\+\+|libgcc_s)\.so'
for program in "$out"/bin/*; do
  ldd "$program" | awk '$2 == "=>" {print $1, $3}' | while read -r name path; do
    [[ "$name" =~ $glibc ]] || [ -e "$out/lib/$name" ] || install -m 644 "$(readlink -f "$path")" "$out/lib/$name"
  done
done
git rev-parse --short=12 HEAD >"$out/commit"
XZ_OPT='--lzma2=preset=1,dict=128MiB' tar -C dist -cJf dist/bloomery-gpu.tar.xz bloomery-gpu
ls -l dist/bloomery-gpu.tar.xz | awk '{print $NF": "$5" bytes"}'
