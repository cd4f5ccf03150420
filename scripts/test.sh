#!/usr/bin/env bash
# scripts/test.sh      make test: everything that proves the library, the same in each run, in five minutes on two cores:
#                      gofmt of every module, and go vet and go test of the root module
# scripts/test.sh all  the rest: the root module's tests under -race and in their full form, with a random seed, which is
#                      printed; and go vet and go test of the other modules: faults on real servers and processes, a browser,
#                      parsers of other projects and Prometheus, the tests of the benchmarks
#
#   TIMEOUT  longest time for the tests of one package (default 10m; all: 40m, for the race detector on a busy machine)
#   P        packages tested at once (default: one per core, at most 4); 1 when a test's own timing matters
#   CI       if set, a missing redis-server or browser is a failure; otherwise the tests that need it are skipped, with a notice
#   HYBRIDLIMIT_SEED  the seed of random tests (default: 1; all: random)
#   HYBRIDLIMIT_LONG  if set, the long form of the tests (make test-long)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

what=${1:-short}
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
P=${P:-$((cores < 4 ? cores : 4))}
[[ $what == all ]] && longest=40m || longest=10m
TIMEOUT=${TIMEOUT:-$longest}
log=$(mktemp)
faults=$(mktemp)
trap 'rm -f "$log" "$faults"' EXIT

check_gofmt() {
  local unformatted
  unformatted=$(go_files | xargs -0 -r gofmt -l) || return
  if [[ -n $unformatted ]]; then
    printf 'not formatted (make fmt mends it):\n%s\n' "$unformatted"
    return 1
  fi
}

vet() (cd "$1" && go vet ./...)

# Packages with long waits come first, so that they do not run alone at the end.
packages() (cd "$1" && if [[ $1 == . ]]; then go list ./hybrid ./global ./...; else go list ./...; fi)

# Packages that start no goroutines. The race detector finds nothing there, and takes up to ten times the time. rls/internal/replay
# starts the server of another package that has tests of its own, and compiles another project.
sequential='github.com/hybridlimit/hybridlimit/(lua|internal/(account|agenda|algo|house|permits|reference)|rls/internal/(docs|replay|rules))$'

pure() { packages "$1" | grep -E "$sequential" || true; }
concurrent() { packages "$1" | grep -Ev "$sequential"; }

# Modules that are tested without the race detector: parsers, the client of the browser and rival limiters take minutes to compile
# with it. Other tests run the same code of the library under it.
unraced='^\./(bench|internal/e2e|internal/e2e/ui)$'

# raceless prints the files of tests that the race detector leaves out (//go:build !race): one goroutine calls, or memory,
# allocations or time are measured.
raceless() {
  (cd "$1" && go list -f '{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}' ./...) |
    tr '\n' '\0' | xargs -0 -r grep -lx '//go:build !race' || true
}

# test_raceless DIR FILES tests them.
test_raceless() {
  local files=$2 names
  names=$(printf '%s' "$files" | tr '\n' '\0' | xargs -0 sed -nE 's/^func ((Test|Example)[A-Za-z0-9_]*)\(.*/\1/p' | paste -sd '|' -)
  directories() { sed 's|/[^/]*$||' <<<"$files" | sort -u; }
  LIST=directories run_tests "$1" -run "^($names)\$" -parallel $((2 * cores))
}

# run_tests DIR FLAGS... (LIST names the function that lists the packages, default: packages)
# -count=1: a cached "ok" ignores changes of redis-server and of the environment.
# -vet=off: go vet has already run in full.
run_tests() (
  dir=$1
  shift
  names=$("${LIST:-packages}" "$dir") || exit
  cd "$dir"
  # shellcheck disable=SC2086 # one word a package
  go test "$@" -vet=off -count=1 -p "$P" -timeout "$TIMEOUT" $names 2>&1 | tee -a "$log"
)

# full_forms prints the tests of the root module that have a longer form in make test-all.
full_forms() {
  find . \( -name '.?*' -o -name testdata -o -path ./internal/e2e -o -path ./internal/testenv -o -path ./bench \) -prune -o -name '*_test.go' -print0 |
    xargs -0 awk 'FNR == 1 { name = "" } /^func / { split($2, f, "("); name = f[1] } /testenv\.Full\(\)/ && name ~ /^Test/ { print name }' |
    LC_ALL=C sort -u
}

# times prints the duration of each package, the slowest first.
times() {
  printf '\nSeconds by package, the slowest first:\n'
  awk -F '\t' '($1 ~ /^ok/ || $1 == "FAIL") && $3 ~ /^[0-9.]+s/ { sub(/s.*/, "", $3); printf "%8.1f  %s%s\n", $3, $2, $1 == "FAIL" ? "  FAILED" : "" }' "$log" |
    LC_ALL=C sort -rn
}

# The race detector leaves out the interpreter of the Lua scripts. Redis in memory runs it under its own lock, on no data of this
# project. Instrumented, it takes more than a third of the processor time of TestConformance in hybrid.
uninstrumented='github.com/yuin/gopher-lua/...=-race=false'

# Faults take real time and little of the processor, so they run beside the tests of the other modules. Their output comes when
# these have ended. With P=1 they run alone.
faults_pid=
start_faults() {
  (vet ./bench/chaos && run_tests ./bench/chaos -race -gcflags="$uninstrumented") >"$faults" 2>&1 &
  faults_pid=$!
}

end_faults() {
  local status=0
  wait "$faults_pid" || status=$?
  cat "$faults"
  return "$status"
}

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

short() {
  export HYBRIDLIMIT_SEED=${HYBRIDLIMIT_SEED:-1}
  part "redis-server" find_redis
  part "gofmt" check_gofmt
  part "go vet" vet .
  part "go test" run_tests . -parallel $((2 * cores)) # many tests mostly wait for a real server
  times
  printf '\nRan: gofmt of every module; go vet and go test of %s packages of the root module, random tests from seed %s.\n' \
    "$(packages . | wc -l | tr -d ' ')" "$HYBRIDLIMIT_SEED"
  cat <<'EOF'
Left to make test-all:
  - the root module under the race detector, with a random seed
EOF
  full_forms | sed 's/^/  - the full form of /'
  cat <<'EOF'
  - bench: the tests of the benchmarks, of the lab and of the figures in documents
  - bench/chaos: faults on real servers and processes
  - internal/e2e: other people's parsers, frameworks and Prometheus; the Go code in README and docs
  - internal/e2e/ui: the page of examples/playground in a browser
  - every other nested module: adapters, the rate limit service, examples
Left to make test-long: the searches with many more schedules, an hour and more.
EOF
}

all() {
  export HYBRIDLIMIT_FULL=1
  if [[ -z ${HYBRIDLIMIT_SEED:-} ]]; then
    HYBRIDLIMIT_SEED=$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')
    export HYBRIDLIMIT_SEED
  fi
  printf 'Random tests begin at this seed; to see them again: HYBRIDLIMIT_SEED=%s make test-all\n' "$HYBRIDLIMIT_SEED"
  part "redis-server" find_redis
  part "chromium" find_browser
  local dir files
  while read -r dir <&3; do
    [[ $dir == ./bench/chaos && -n $faults_pid ]] && continue
    part "$dir: go vet" vet "$dir"
    if [[ $dir =~ $unraced ]]; then
      part "$dir: go test" run_tests "$dir" -parallel $((2 * cores))
      continue
    fi
    [[ -z $(pure "$dir") ]] || LIST=pure part "$dir: go test" run_tests "$dir" -parallel $((2 * cores))
    files=$(raceless "$dir")
    [[ -z $files ]] || part "$dir: go test of what the race detector leaves out" test_raceless "$dir" "$files"
    LIST=concurrent part "$dir: go test -race" run_tests "$dir" -race -gcflags="$uninstrumented" -parallel $((2 * cores))
    [[ $dir != . ]] || ((P == 1)) || start_faults
  done 3< <(modules)
  [[ -z $faults_pid ]] || part "./bench/chaos: go vet and go test -race" end_faults
  times
  printf '\nRan: go vet and go test of every module, under the race detector but for bench, internal/e2e, packages without goroutines and tests in files without it (//go:build !race), random tests from HYBRIDLIMIT_SEED=%s.\nLeft to make test-long: the searches with many more schedules.\n' "$HYBRIDLIMIT_SEED"
}

case $what in
short) short ;;
all) all ;;
*)
  printf 'usage: scripts/test.sh [all]\n' >&2
  exit 2
  ;;
esac

if [[ $redis == no ]]; then
  printf '\n**** NOT TESTED: whatever needs a real redis-server. Those tests were skipped (see above for how to install it). ****\n'
fi
if [[ $browser == no ]]; then
  printf '\n**** NOT TESTED: the page of examples/playground. Its tests were skipped, for want of a browser (see above). ****\n'
fi
if [[ $what == all ]]; then finish "test-all"; else finish "test"; fi
