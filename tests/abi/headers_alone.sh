#!/usr/bin/env bash
# usage: headers_alone.sh <compiler, e.g. clang-19> <include folder>
# Compiles each header of the SDK by itself: *.h as C11 and C++20, *.hpp as C++20.
set -uo pipefail
cc=$1 include=$2
cxx=$(sed 's/^gcc/g++/; s/^clang/clang++/' <<<"$cc")
flags=(-fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror "-I$include")
failed=0 count=0
compile() {  # compile <compiler> <language> <standard> <header>
  count=$((count + 1))
  if ! printf '#include <%s>\n' "${4#"$include"/}" | "$1" -x "$2" "-std=$3" "${flags[@]}" -; then
    echo "FAILED: $1 -std=$3 ${4#"$include"/}"
    failed=1
  fi
}
for header in "$include"/bloomery/*.h; do
  compile "$cc" c c11 "$header"
  compile "$cxx" c++ c++20 "$header"
done
for header in "$include"/bloomery/*.hpp; do
  compile "$cxx" c++ c++20 "$header"
done
echo "$count compilations"
[ "$count" -gt 0 ] && exit $failed
