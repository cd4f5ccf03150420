#!/usr/bin/env bash
# Runs a command in the directory of every Go module, the root first: scripts/each-module.sh go mod tidy
# All of them run; the status is 1 if any failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

in_module() (cd "$1" && shift && "$@")

while read -r dir <&3; do
  part "$dir" in_module "$dir" "$@"
done 3< <(modules)
finish "every module"
