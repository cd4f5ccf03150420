#!/usr/bin/env bash
# The tests of the gate, the same in each run. A failed test of a real server or of virtual time runs again three times,
# alone (see internal/test/testrun).
#
#   scripts/test.sh          make test: gofmt of every module, and the tests of the root module
#   scripts/test.sh race     the tests with concurrent callers (*_concurrent_test.go) under the race detector
#   scripts/test.sh modules  the tests of the other modules, but for those that are left to make search
#
#   GATE     set by the gate: print seconds, and leave the tests with concurrent callers to the race detector
#   TIMEOUT  longest time for the tests of one package (default 10m)
#   P        packages tested at once (default: one per core, at most 4)
#   CI       if set, a missing redis-server is a failure; otherwise the tests that need it are skipped, with a notice
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

export HYBRIDLIMIT_SEED=${HYBRIDLIMIT_SEED:-1}
concurrent=with
if [[ -n ${GATE:-} ]]; then concurrent=without; else export TIMES=no; fi

check_gofmt() {
  local unformatted
  unformatted=$(go_files | xargs -0 -r gofmt -l) || return
  if [[ -n $unformatted ]]; then
    printf 'not formatted (make fmt mends it):\n%s\n' "$unformatted"
    return 1
  fi
}

# run_tests DIR CONCURRENT GO TEST FLAGS...
# -count=1: a cached "ok" ignores changes of redis-server and of the environment.
# -vet=off: make lint has the analyzers of go vet, and more.
# Many tests mostly wait for a real server, so more of them run than there are cores.
run_tests() {
  local dir=$1 which=$2
  shift 2
  # shellcheck disable=SC2046 # one word a package
  "$tools/testrun" ${GATE:+-seconds} -concurrent="$which" "$dir" \
    -vet=off -count=1 -p="$P" -parallel=$((2 * cores)) -timeout="${TIMEOUT:-10m}" "$@" $(tested "$dir")
}

redis=yes
find_redis() {
  scripts/install-redis.sh || return
  scripts/install-redis.sh --check >/dev/null 2>&1 || redis=no
}

part "redis-server" find_redis
build testrun
case ${1:-} in
"")
  part "gofmt" check_gofmt
  part "tests" run_tests . "$concurrent"
  ;;
race)
  # Without inlining (-l) the compiler needs a quarter less time. Calls allocate more then, which no concurrent test counts.
  while read -r dir <&3; do
    [[ ! $dir =~ $raced ]] ||
      part "$dir: concurrent callers under the race detector" run_tests "$dir" only "-gcflags=all=-l $lean" "${racing[@]}"
  done 3< <(gated)
  ;;
modules)
  while read -r dir <&3; do
    [[ $dir != . ]] || continue
    [[ $dir =~ $raced ]] && which=$concurrent || which=with
    part "$dir: tests" run_tests "$dir" "$which"
  done 3< <(gated)
  ;;
*)
  printf 'usage: scripts/test.sh [race|modules]\n' >&2
  exit 2
  ;;
esac
if [[ $redis == no ]]; then
  printf '\n**** NOT TESTED: whatever needs a real redis-server. Those tests were skipped (see above for how to install it). ****\n'
fi
finish "test${1:+ $1}"
