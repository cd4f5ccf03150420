#!/usr/bin/env bash
# Makes sure that a redis-server of at least 6.2 is in PATH, for the tests that start their own server on a free port.
#
#   scripts/install-redis.sh          installs one if there is none, with apt-get, apk, dnf or brew; never asks for a password
#   scripts/install-redis.sh --check  installs nothing; status 0 if there is one already
#
# If there is still none: status 1 if CI is set, else a warning and status 0, because the tests that need a server are
# skipped.
# The tests start their own servers. So this script leaves none running as a service, and does not touch a server that
# it has not installed.
set -euo pipefail

readonly need_major=6 need_minor=2

cd "$(dirname "$0")/.."
. scripts/lib.sh

say() { printf 'install-redis: %s\n' "$*" >&2; }

# version prints MAJOR.MINOR.PATCH of the redis-server in PATH (Valkey answers in the same form), or nothing.
version() {
  redis-server --version 2>/dev/null | sed -nE 's/.*[[:space:]]v=([0-9]+\.[0-9]+\.[0-9]+).*/\1/p'
}

# enough succeeds if the tests can use the version MAJOR.MINOR.PATCH.
enough() {
  local major minor
  IFS=. read -r major minor _ <<<"$1"
  [[ -n $major ]] && ((major > need_major || (major == need_major && minor >= need_minor)))
}

# is_installed succeeds if the Debian package is installed. Then its service may be in use.
is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' redis-server 2>/dev/null) == installed ]]; }

# stop_service stops the service of the package that was just installed, and disables it at boot. Both ways affect only
# the packaged server, by its unit or by its pid file.
stop_service() {
  if [[ -d /run/systemd/system ]]; then
    as_root systemctl disable --now redis-server
  elif [[ -x /etc/init.d/redis-server ]]; then
    as_root /etc/init.d/redis-server stop
    as_root update-rc.d redis-server disable
  fi
}

# with_apt installs the Debian package, whose scripts would start a server on port 6379, now and at every boot.
# policy-rc.d is Debian's own way to prevent that. An existing one is left alone.
with_apt() {
  local policy=/usr/sbin/policy-rc.d ours=no status=0 was_installed=no
  if is_installed; then was_installed=yes; fi
  if [[ ! -e $policy ]]; then
    # It is created in one step, so that an interrupted run leaves no partial file. Its text shows that this script
    # made it.
    as_root sh -c "printf '#!/bin/sh\n# made by install-redis.sh\nexit 101\n' >$policy.new && chmod 755 $policy.new && mv $policy.new $policy" || return
    ours=yes
    trap 'as_root rm -f /usr/sbin/policy-rc.d /usr/sbin/policy-rc.d.new' EXIT
    trap 'exit 130' INT TERM
  fi
  # The update fails if any source is unreachable, although the other sources may be enough.
  as_root apt-get update -q -o Acquire::Retries=3 || say "apt-get update failed, trying with the lists that there are"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 redis-server || status=$?
  if [[ $ours == yes ]]; then
    as_root rm -f "$policy"
    trap - EXIT INT TERM
  fi
  # An existing policy-rc.d may have let the server start.
  if [[ $was_installed == no ]] && is_installed; then
    stop_service || say "could not stop the service that the package brought"
  fi
  return "$status"
}

# install uses the first package manager that exists.
install() {
  if command -v apt-get >/dev/null 2>&1; then
    with_apt
  elif command -v apk >/dev/null 2>&1; then
    as_root apk add --no-cache redis
  elif command -v dnf >/dev/null 2>&1; then
    as_root dnf install -y redis || as_root dnf install -y valkey-compat-redis
  elif command -v brew >/dev/null 2>&1; then
    HOMEBREW_NO_AUTO_UPDATE=1 brew install redis
  else
    say "none of apt-get, apk, dnf, brew found"
    return 1
  fi
}

main() {
  local have
  have=$(version || true)
  if enough "$have"; then
    say "redis-server $have: $(command -v redis-server)"
    return 0
  fi
  if [[ ${1:-} == --check ]]; then
    return 1
  fi
  if [[ -n $have ]]; then
    say "redis-server $have is too old, $need_major.$need_minor is needed"
  else
    say "no redis-server in PATH"
  fi
  # Keeps the output of package managers away from stdout.
  install >&2 || say "the installation failed"
  hash -r
  have=$(version || true)
  if enough "$have"; then
    say "redis-server $have installed: $(command -v redis-server)"
    return 0
  fi
  say "there is still no redis-server $need_major.$need_minor or newer in PATH${have:+ (found $have)}"
  say "install one by hand (https://redis.io/docs/latest/operate/oss_and_stack/install/) and put it into PATH"
  if [[ -n ${CI:-} ]]; then
    say "FAILED: CI is set, and without a server half of the promises would go untested"
    return 1
  fi
  say "WARNING: tests that need a real server will be skipped"
}

main "$@"
