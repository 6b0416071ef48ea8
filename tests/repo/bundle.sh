#!/usr/bin/env bash
# Makes dist/bloomery (bin/ lib/ plugins/ share/) and its archive from build/portable, with every library
# beyond glibc beside it, and dist/bloomery-sdk with what a plugin's author reads. Run from the repository root after building the portable preset.
set -euo pipefail

out=dist/bloomery
rm -rf "$out" && mkdir -p "$out"
cmake --install build/portable --prefix "$out" --component runtime >/dev/null

# What glibc itself provides, and what the machine it runs on must therefore have.
glibc='^(ld-linux.*|libc|libm|libdl|librt|libpthread|linux-vdso)\.so'
mkdir -p "$out/lib"
for program in "$out"/bin/*; do
  ldd "$program" | awk '$2 == "=>" {print $1, $3}' | while read -r name path; do
    [[ "$name" =~ $glibc ]] && continue
    [ -e "$out/lib/$name" ] || install -m 644 "$(readlink -f "$path")" "$out/lib/$name"
  done
done
# Each library's licence, from the package it came in; RapidJSON and Boost are headers.
mkdir -p "$out/share/doc/bloomery/licenses"
# And the pages that --help and the manual name, where they name them.
mkdir -p "$out/share/doc/bloomery/docs"
install -m 644 LICENSE README.md "$out/share/doc/bloomery"
install -m 644 docs/serving.md docs/agents.md docs/residency.md docs/tools.md docs/programs.md docs/drafts.md docs/numeric-rule.md "$out/share/doc/bloomery/docs"
for package in $(for program in "$out"/bin/*; do ldd "$program"; done | awk '$2 == "=>" {print $3}' | sort -u |
    while read -r path; do dpkg -S "$(readlink -f "$path")" 2>/dev/null | cut -d: -f1; done | sort -u) rapidjson-dev libboost1.81-dev libxxhash-dev; do
  case "$package" in libc6) continue ;; esac
  [ -e "/usr/share/doc/$package/copyright" ] && install -m 644 "/usr/share/doc/$package/copyright" "$out/share/doc/bloomery/licenses/$package"
done
install -m 644 build/portable/page/notices.txt "$out/share/doc/bloomery/licenses/page-packages.txt"
for library in "$out"/lib/*.so*; do
  patchelf --set-rpath '$ORIGIN' "$library"
done
for program in "$out"/bin/*; do
  patchelf --set-rpath '$ORIGIN/../lib' "$program"
done
strip --strip-unneeded "$out"/bin/* "$out"/lib/*.so* "$out"/plugins/*/*.so

needed=$(objdump -T "$out"/bin/* "$out"/lib/*.so* "$out"/plugins/*/*.so | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1)
# Both programs hold the kernels of the card: a window as large as the bundle stores them once.
export XZ_OPT=--lzma2=preset=6,dict=64MiB
tar -C dist -cJf dist/bloomery-linux-x86_64.tar.xz bloomery
tar -C dist -cJf dist/bloomery-linux-x86_64-no-model.tar.xz --exclude='bloomery/share/bloomery/models' bloomery
# For who writes a plugin against this bundle: the SDK of the same version, and the pages about it.
sdk=dist/bloomery-sdk
rm -rf "$sdk"
cmake --install build/portable --prefix "$sdk" --component sdk >/dev/null
mkdir -p "$sdk/share/doc/bloomery-sdk"
install -m 644 LICENSE docs/plugin-guide.md docs/tools.md docs/drafts.md "$sdk/share/doc/bloomery-sdk"
tar -C dist -cJf dist/bloomery-sdk.tar.xz bloomery-sdk

echo "dist/bloomery: $(du -sm "$out" | cut -f1) MiB, needs $needed"
ls -l dist/*.tar.xz | awk '{print $NF": "$5" bytes"}'
