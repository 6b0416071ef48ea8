#!/usr/bin/env bash
# npm_install.sh SOURCE WORK: the packages of SOURCE's lock file, installed into WORK. An installation of
# exactly this lock file is kept.
set -euo pipefail
source_folder=$1
work=$2
mkdir -p "$work"
cmp -s "$source_folder/package-lock.json" "$work/installed-lock.json" && exit 0
cp "$source_folder/package.json" "$source_folder/package-lock.json" "$work/"
(cd "$work" && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts --prefer-offline)
cp "$source_folder/package-lock.json" "$work/installed-lock.json"
