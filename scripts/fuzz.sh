#!/usr/bin/env bash
# Runs every fuzz target of every module for a while, one after the other: scripts/fuzz.sh [NAME]
# With NAME it runs only the targets whose names contain it.
#
#   FUZZTIME  how long each runs (default 60s)
#   P         inputs tried at once (default: one per core)
#
# Go saves a failing input in testdata/fuzz of its package, where every go test runs it. Fix the failure, and commit
# the input too.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

FUZZTIME=${FUZZTIME:-60s}
P=${P:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}

# targets MODULE prints, for each fuzz target, its package relative to the module and its name. Nested modules are left
# out.
targets() (
  cd "$1"
  find . -mindepth 1 -type d \( -name '.?*' -o -name testdata -o -name vendor -o -name node_modules -o -exec test -e '{}/go.mod' ';' \) -prune \
    -o -name '*_test.go' -exec grep -HEo '^func Fuzz[A-Za-z0-9_]+' {} + -type f |
    sed -nE 's|^(.*)/[^/]*:func (.*)$|\1 \2|p' | LC_ALL=C sort
)

fuzz() (cd "$1" && go test "$2" -run '^$' -fuzz "^$3\$" -fuzztime "$FUZZTIME" -parallel "$P")

while read -r dir <&3; do
  while read -r package name <&4; do
    if [[ $name == *"${1:-}"* ]]; then
      part "$dir: $package $name" fuzz "$dir" "$package" "$name"
    fi
  done 4< <(targets "$dir")
done 3< <(modules)
finish "fuzz"
