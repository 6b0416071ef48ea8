#!/usr/bin/env bash
# run.sh SOURCE WORK SERVER: installs the clients into WORK and runs clients.mjs against SERVER.
set -euo pipefail
source_folder=$1
work=$2
server=$3
mkdir -p "$work"
# An installation of exactly this lock file is kept.
if ! cmp -s "$source_folder/package-lock.json" "$work/installed-lock.json"; then
  cp "$source_folder/package.json" "$source_folder/package-lock.json" "$work/"
  (cd "$work" && npm ci --silent --no-audit --no-fund --ignore-scripts)
  cp "$source_folder/package-lock.json" "$work/installed-lock.json"
fi
cp "$source_folder/clients.mjs" "$source_folder/../server.mjs" "$work/"
cd "$work" && node clients.mjs "$server"
