#!/usr/bin/env bash
# make search: everything that the gate leaves out, for as long as SEARCH says. It never gates: a person reads what it found.
#
#   SEARCH  30m, 2h or 600s (default 10m). A part that has not ended by then is cut, and says so.
#   HYBRIDLIMIT_SEED  the seed of the first round (default: drawn); each further round draws another
#   HYBRIDLIMIT_LONG  if set, the longest form of the tests
#   RESULTS  folder for the failures (default: search/)
#
# The first round takes the parts in the order of what found most: drawn seeds and full forms of the root module, faults
# on real servers, the other modules with benchmarks and browser, the race detector, style, other platforms. Further
# rounds repeat the searches with other seeds. The race detector takes half an hour.
#
# Each failure is a file in RESULTS with revision, test, seed and output. The status is 1 if there is one.
# Make a finding a row: a defect of the product becomes a regression test, a defect of a test a mended test.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

seconds() {
  case $1 in
  *h) echo $((${1%h} * 3600)) ;;
  *m) echo $((${1%m} * 60)) ;;
  *s) echo "${1%s}" ;;
  *)
    printf 'search: SEARCH=%s must be a number with h, m or s\n' "$1" >&2
    return 1
    ;;
  esac
}

SEARCH=${SEARCH:-10m}
length=$(seconds "$SEARCH")
end=$(($(date +%s) + length))
left() { echo $((end - $(date +%s))); }

draw() { od -An -N6 -tu8 /dev/urandom | tr -d ' '; }
export HYBRIDLIMIT_FULL=1 HYBRIDLIMIT_SEED=${HYBRIDLIMIT_SEED:-$(draw)} CI=${CI:-true}
revision=$(git describe --always --dirty --exclude '*')
results=${RESULTS:-search}
printf 'search: revision %s, HYBRIDLIMIT_SEED=%s, %s\n' "$revision" "$HYBRIDLIMIT_SEED" "$SEARCH"

found=()
cut=()
mkdir -p "$results"
results=$(cd "$results" && pwd)

# look NAME COMMAND... runs a part for the time that is left. Its failure becomes a file.
look() {
  local name=$1 status=0 before=$SECONDS log
  shift
  if (($(left) <= 0)); then
    cut+=("$name (not begun)")
    return 0
  fi
  printf '\n==> %s\n' "$name"
  log=$(mktemp)
  "$@" 2>&1 | tee "$log" || status=$?
  case $status in
  0) printf '    %s: nothing found, %d s\n' "$name" $((SECONDS - before)) ;;
  3 | 124 | 137)
    printf '    %s: cut by the end of the search, %d s\n' "$name" $((SECONDS - before))
    cut+=("$name")
    ;;
  *)
    found+=("$name, seed $HYBRIDLIMIT_SEED")
    printf '    %s: FOUND SOMETHING (status %d), %d s\n' "$name" "$status" $((SECONDS - before))
    # The tests have written a file for each failed test. Other parts have one file.
    [[ $1 == tests ]] || {
      printf 'revision: %s\npart: %s\nseed: %s\n\n' "$revision" "$name" "$HYBRIDLIMIT_SEED"
      cat "$log"
    } >"$results/$(date -u +%Y%m%dT%H%M%S)-${name//[^A-Za-z0-9]/_}.txt"
    ;;
  esac
  rm -f "$log"
}

# limited COMMAND... ends a command with the search.
limited() { timeout --kill-after=20s "$(left)s" "$@"; }

# tests DIR GO TEST FLAGS...
tests() {
  local dir=$1
  shift
  # shellcheck disable=SC2046 # one word a package
  "$tools/testrun" -seconds -failures="$results" -until="$end" "$dir" \
    -tags=search -vet=off -count=1 -p="$P" -parallel=$((2 * cores)) -timeout=3h "$@" $(tested "$dir" -tags=search)
}

chaos() { cd bench/chaos && limited go run . -soak "$1" -seed 0; }
platforms() {
  local pair
  for pair in windows/386 darwin/arm64; do
    GOOS=${pair%/*} GOARCH=${pair#*/} limited go vet -tags=search ./... || return
  done
}

scripts/install-redis.sh
scripts/install-chromium.sh
scripts/install-prometheus.sh
build testrun

look "root module, full forms" tests .
look "faults on real servers" tests ./bench/chaos
while read -r dir <&3; do
  [[ $dir == . || $dir == ./bench/chaos ]] || look "$dir" tests "$dir"
done 3< <(modules)
look "root module, race detector" tests . "${racing[@]}"
look "style" limited make style
look "other platforms" platforms
while (($(left) > 60)); do
  HYBRIDLIMIT_SEED=$(draw)
  printf '\nsearch: another round, HYBRIDLIMIT_SEED=%s\n' "$HYBRIDLIMIT_SEED"
  look "root module, full forms, seed $HYBRIDLIMIT_SEED" tests .
  (($(left) < 600)) || look "soak" chaos 5m
done

printf '\nsearch: %d s of %s, revision %s\n' "$SECONDS" "$SEARCH" "$revision"
((${#cut[@]} == 0)) || printf 'cut: %s\n' "${cut[@]}"
if ((${#found[@]} > 0)); then
  printf 'FOUND: %s\n' "${found[@]}"
  printf 'The failures are in %s/\n' "$results"
  exit 1
fi
printf 'search: nothing found\n'
