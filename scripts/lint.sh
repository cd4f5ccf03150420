#!/usr/bin/env bash
# Static checks of the gate.
#
#   scripts/lint.sh        make lint: the analyzers of go vet, staticcheck, errorlint and nilerr, on every module that the gate tests
#   scripts/lint.sh types  the types of what the gate does not compile: the Go blocks of the pages, the modules whose tests
#                          are left to make search, and the root module on Windows with 32 bits, each with its tests
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

lint() (cd "$1" && go vet -tags=search -vettool="$tools/lint" ./...)

# elsewhere GOOS GOARCH. Windows has every file that is not of Linux or of Unix; make search vets macOS too.
elsewhere() { GOOS=$1 GOARCH=$2 "$tools/typecheck" .; }

case ${1:-} in
"")
  build lint
  while read -r dir <&3; do
    part "$dir: lint" lint "$dir"
  done 3< <(gated | grep -Evx './internal/(e2e|lint)') # their dependencies take minutes; make style has them
  ;;
types)
  build typecheck
  part "Go blocks of the pages" "$tools/typecheck" -pages internal/test/e2e
  # shellcheck disable=SC2046 # one word a module
  part "modules of make search" "$tools/typecheck" ./internal/test/e2e $(modules | grep -E "$searched")
  part "the root module on Windows with 32 bits" elsewhere windows 386
  ;;
*)
  printf 'usage: scripts/lint.sh [types]\n' >&2
  exit 2
  ;;
esac
finish "lint${1:+ $1}"
