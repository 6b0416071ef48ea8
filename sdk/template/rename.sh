#!/bin/sh
# usage: sh rename.sh NAME
# Makes this copy of the template yours: files, class, operators and the architecture it claims are called NAME
# (small letters, digits and underscores), the class Name. The architecture is what general.architecture of your
# files says; where that is another word, change it in NAME.json, NAME.fixture.json and Probe afterwards.
set -eu
name=${1-}
case $name in
  '' | [!a-z]* | *[!a-z0-9_]*) echo "usage: sh rename.sh NAME (a letter, then letters, digits, _)" >&2; exit 64 ;;
esac
class=$(printf %s "$name" | awk '{print toupper(substr($0, 1, 1)) substr($0, 2)}')
for file in toy.cc toy.json toy.fixture.json; do
  sed "s/toy/$name/g; s/Toy/$class/g" "$file" > "$name${file#toy}.new"
  rm "$file"
  mv "$name${file#toy}.new" "$name${file#toy}"
done
sed "s/toy/$name/g" CMakeLists.txt > CMakeLists.new
mv CMakeLists.new CMakeLists.txt
