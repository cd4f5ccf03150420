#!/usr/bin/env bash
# Makes sure that a Chromium or a Chrome is in PATH, for the tests of the playground's page.
#
#   scripts/install-chromium.sh          installs one if there is none, with apt-get, apk or dnf; never asks for a password
#   scripts/install-chromium.sh --check  installs nothing; status 0 if there is one already
#
# If there is still none: status 1 if CI is set, else a warning and status 0, because the tests that need a browser are
# skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say() { printf 'install-chromium: %s\n' "$*" >&2; }

# browser prints the path of the browser that the tests would use, or nothing.
browser() { command -v chromium || command -v chromium-browser || command -v google-chrome || true; }

# install uses the first package manager that exists.
install() {
  if command -v apt-get >/dev/null 2>&1; then
    # The update fails if any source is unreachable, although the other sources may be enough.
    as_root apt-get update -q -o Acquire::Retries=3 || say "apt-get update failed, trying with the lists that there are"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 chromium fonts-dejavu-core
  elif command -v apk >/dev/null 2>&1; then
    as_root apk add --no-cache chromium font-dejavu
  elif command -v dnf >/dev/null 2>&1; then
    as_root dnf install -y chromium
  else
    say "none of apt-get, apk, dnf found"
    return 1
  fi
}

main() {
  local have
  have=$(browser)
  if [[ -n $have ]]; then
    say "$have"
    return 0
  fi
  if [[ ${1:-} == --check ]]; then
    return 1
  fi
  say "no chromium in PATH"
  # Keeps the output of package managers away from stdout.
  install >&2 || say "the installation failed"
  hash -r
  have=$(browser)
  if [[ -n $have ]]; then
    say "$have installed"
    return 0
  fi
  say "there is still no chromium, chromium-browser or google-chrome in PATH; install one by hand"
  if [[ -n ${CI:-} ]]; then
    say "FAILED: CI is set, and without a browser nobody looks at the playground's page"
    return 1
  fi
  say "WARNING: the tests of the playground's page will be skipped"
}

main "$@"
