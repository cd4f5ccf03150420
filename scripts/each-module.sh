#!/usr/bin/env bash
# Runs a command in the directory of every Go module, the root first: scripts/each-module.sh go mod tidy
# It runs in all modules. The status is 1 if it failed in any.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

in_module() (cd "$1" && shift && "$@")

while read -r dir <&3; do
  part "$dir" in_module "$dir" "$@"
done 3< <(modules)
finish "every module"
