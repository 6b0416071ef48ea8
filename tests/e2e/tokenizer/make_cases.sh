#!/usr/bin/env bash
# make_cases.sh SOURCE WORK: installs the JavaScript tokenizer into WORK and writes WORK/cases.json.
set -euo pipefail
source_folder=$1
work=$2
bash "$source_folder/../npm_install.sh" "$source_folder" "$work"
cp "$source_folder/corpus.mjs" "$source_folder/make_cases.mjs" "$work/"
cd "$work" && node make_cases.mjs cases.json
