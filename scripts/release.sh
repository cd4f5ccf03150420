#!/usr/bin/env bash
# Checks the modules as others use them, or prepares a release: see internal/test/release.
#
#   scripts/release.sh check            make release-check
#   scripts/release.sh prepare VERSION  make release VERSION=v0.1.0
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
build release
"$tools/release" "$@"
