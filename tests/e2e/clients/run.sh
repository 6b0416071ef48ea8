#!/usr/bin/env bash
# run.sh SOURCE WORK SERVER SCRIPT: installs the clients into WORK and runs one of the scripts against SERVER.
set -euo pipefail
source_folder=$1
work=$2
server=$3
script=$4
bash "$source_folder/../npm_install.sh" "$source_folder" "$work"
cp "$source_folder"/*.mjs "$source_folder"/*.jinja "$source_folder/../server.mjs" "$work/"
cd "$work" && node "$script" "$server"
