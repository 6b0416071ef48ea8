#!/usr/bin/env bash
# Shows that dist/bloomery runs where nothing but glibc is: unpacks its archive elsewhere, serves the demo
# model with an empty environment, and asks it for the capital of Japan. As root it runs inside a folder
# that holds the bundle, glibc and nothing else; otherwise from a folder of its own with the machine's
# libraries in reach, and checks what was loaded. Then the sizes and the glibc it asks for; and that the template
# of the SDK's archive builds, and passes check-plugin of the bundle.
set -euo pipefail

archive=$PWD/dist/bloomery-linux-x86_64.tar.xz
bytes_max=$((12 << 20))  # what is carried beside the tracked files to a card machine
glibc_max=2.36
room=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$room"' EXIT
fail() { echo "bundle: $*" >&2; exit 1; }

tar -C "$room" -xJf "$archive"
bundle=$room/bloomery

bytes=$(stat -c %s dist/bloomery-linux-x86_64-no-model.tar.xz)
[ "$bytes" -lt "$bytes_max" ] || fail "the archive without the model holds $bytes bytes, limit $bytes_max"
needed=$(objdump -T "$bundle"/bin/* "$bundle"/lib/*.so* "$bundle"/plugins/*/*.so |
  grep -oE 'GLIBC_2\.[0-9]+' | sed 's/GLIBC_//' | sort -uV | tail -1)
[ "$(printf '%s\n' "$needed" "$glibc_max" | sort -V | tail -1)" = "$glibc_max" ] ||
  fail "it needs glibc $needed, more than $glibc_max"
for page in $("$bundle"/bin/bloomery-serve --help | grep -oE 'docs/[a-z-]+\.md' | sort -u); do
  [ -e "$bundle/share/doc/bloomery/$page" ] || fail "--help names $page, which is not inside"
done
find "$bundle/share/doc/bloomery/licenses" -type f | grep -q . || fail "no licences inside"

tar -C "$room" -xJf dist/bloomery-sdk.tar.xz
cp -r "$room/bloomery-sdk/share/bloomery-sdk/template" "$room/toy"
(cd "$room/toy" && export PATH="$bundle/bin:$PATH" && cmake -G Ninja -B build -DCMAKE_PREFIX_PATH="$room/bloomery-sdk" \
  -DCMAKE_BUILD_TYPE=Release && cmake --build build && ctest --test-dir build --no-tests=error --output-on-failure) >"$room/toy.log" 2>&1 ||
  { cat "$room/toy.log"; fail "the SDK's template does not pass with it"; }

if [ "$(id -u)" = 0 ]; then
  how="in a root folder with glibc alone"
  for path in /lib64/ld-linux-x86-64.so.2 $(ldd /bin/true "$bundle"/bin/* | grep -oE '/[^ ]*/(libc|libm|libpthread|libdl|librt)\.so[^ ]*' | sort -u); do
    install -D "$(readlink -f "$path")" "$room$path"
  done
  # $ORIGIN needs /proc; it is mounted in a mount name space of the server's own.
  mkdir "$room/proc"
  run=("$(command -v unshare)" -m /bin/sh -c
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin; mount -t proc proc '$room/proc' && exec chroot '$room' /bloomery/bin/bloomery-serve \"\$@\"" sh)
else
  how="with an empty environment"
  outside=$(ldd "$bundle"/bin/* | awk '$2 == "=>" {print $3}' | grep -v "^$bundle/" | grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' || true)
  [ -z "$outside" ] || fail "it loads from outside: $outside"
  run=("$bundle/bin/bloomery-serve")
fi
env -i "${run[@]}" --port 0 >"$room/out" 2>"$room/err" &
server=$!
for _ in $(seq 200); do
  url=$(grep -oE 'http://[0-9.:]+' "$room/out" | tail -1) && [ -n "$url" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$room/out" "$room/err"; fail "it did not start"; }
  sleep 0.1
done
[ -n "${url:-}" ] || fail "it did not say where it listens"
answer=$(curl -sS --max-time 60 "$url/v1/chat/completions" \
  -d '{"messages": [{"role": "user", "content": "What is the capital of Japan?"}], "temperature": 0}')
grep -q Tokyo <<<"$answer" || fail "it answered: $answer"
curl -sS --max-time 60 "$url/" | grep -q 'assets/page-' || fail "it has no page"
kill "$server"
wait "$server" || fail "it did not end in order"
server=
echo "bundle: answered $how; needs glibc $needed; $bytes bytes compressed without the model"
