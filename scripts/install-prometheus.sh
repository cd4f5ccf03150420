#!/usr/bin/env bash
# Makes sure that prometheus is in PATH, for the test of examples/service with a real one. It installs it with apt-get, and
# never asks for a password. If there is still none: status 1 if CI is set, else a warning and status 0.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say() { printf 'install-prometheus: %s\n' "$*" >&2; }

install() {
  command -v apt-get >/dev/null 2>&1 || { say "no apt-get found" && return 1; }
  as_root apt-get update -q -o Acquire::Retries=3 || say "apt-get update failed, trying with the lists that there are"
  # The package would start the server, which nobody asked for.
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 prometheus
}

command -v prometheus >/dev/null 2>&1 || install >&2 || true
if ! command -v prometheus; then
  say "there is no prometheus: its test is skipped"
  [[ -z ${CI:-} ]] || exit 1
fi
