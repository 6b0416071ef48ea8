#!/usr/bin/env bash
# make_cases.sh SOURCE WORK: installs the JavaScript tokenizer into WORK and writes WORK/cases.json.
set -euo pipefail
source_folder=$1
work=$2
mkdir -p "$work"
# An installation of exactly this lock file is kept.
if ! cmp -s "$source_folder/package-lock.json" "$work/installed-lock.json"; then
  cp "$source_folder/package.json" "$source_folder/package-lock.json" "$work/"
  (cd "$work" && npm ci --silent --no-audit --no-fund --ignore-scripts)
  cp "$source_folder/package-lock.json" "$work/installed-lock.json"
fi
cp "$source_folder/corpus.mjs" "$source_folder/make_cases.mjs" "$work/"
cd "$work" && node make_cases.mjs cases.json
