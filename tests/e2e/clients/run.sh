#!/usr/bin/env bash
# run.sh SOURCE WORK SERVER: installs the clients into WORK and runs clients.mjs against SERVER.
set -euo pipefail
source_folder=$1
work=$2
server=$3
bash "$source_folder/../npm_install.sh" "$source_folder" "$work"
cp "$source_folder/clients.mjs" "$source_folder/../server.mjs" "$work/"
cd "$work" && node clients.mjs "$server"
