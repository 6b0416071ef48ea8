#!/usr/bin/env bash
# run.sh SOURCE WORK SERVER [PART]: installs what drives the browser into WORK and runs page.mjs against SERVER.
set -euo pipefail
source_folder=$1
work=$2
bash "$source_folder/../npm_install.sh" "$source_folder" "$work"
cp "$source_folder"/*.mjs "$source_folder/../server.mjs" "$work/"
cd "$work" && exec node page.mjs "${@:3}"
