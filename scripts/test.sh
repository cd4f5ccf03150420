#!/usr/bin/env bash
# Everything that `make test` promises: redis-server and a browser, then for every module go vet, gofmt and go test -race.
#
#   TIMEOUT  longest that one package's tests may take (default 10m)
#   P        packages tested at once (default: one per core, at most 4); 1 when a test's own timing matters
#   CI       if set, a missing redis-server or browser is a failure; otherwise the tests that need it are skipped, and this says so
#   HYBRIDLIMIT_LONG  if set, the tests take the long way (make test-long)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
P=${P:-$((cores < 4 ? cores : 4))}
TIMEOUT=${TIMEOUT:-10m}

check_gofmt() {
  local unformatted
  unformatted=$(go_files | xargs -0 -r gofmt -l) || return
  if [[ -n $unformatted ]]; then
    printf 'not formatted (make fmt mends it):\n%s\n' "$unformatted"
    return 1
  fi
}

vet() (cd "$1" && go vet ./...)

# -count=1: an "ok" from the cache says nothing about a redis-server or an environment that has changed since.
# -vet=off: vet has run, in full, just before.
race() (cd "$1" && go test -race -vet=off -count=1 -p "$P" -timeout "$TIMEOUT" ./...)

redis=yes
find_redis() {
  scripts/install-redis.sh || return
  scripts/install-redis.sh --check >/dev/null 2>&1 || redis=no
}

browser=yes
find_browser() {
  scripts/install-chromium.sh || return
  scripts/install-chromium.sh --check >/dev/null 2>&1 || browser=no
}

part "redis-server" find_redis
part "chromium" find_browser
part "gofmt" check_gofmt
while read -r dir <&3; do
  part "$dir: go vet" vet "$dir"
  part "$dir: go test -race" race "$dir"
done 3< <(modules)

if [[ $redis == no ]]; then
  printf '\n**** NOT TESTED: whatever needs a real redis-server. Those tests were skipped (see above for how to install it). ****\n'
fi
if [[ $browser == no ]]; then
  printf '\n**** NOT TESTED: the page of examples/playground. Its tests were skipped, for want of a browser (see above). ****\n'
fi
finish "test"
