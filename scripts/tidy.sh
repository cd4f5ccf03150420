#!/usr/bin/env bash
# go mod tidy in every module; with -diff it changes nothing and fails if it would.
#
# A module requires the released ones by a version that may have no tag yet. Go takes them from the checkout by go.work, which
# go mod tidy does not read. So it works on a copy of go.mod that replaces them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
export GOWORK=off

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
replaced=() dropped=()
while read -r dir <&3; do
  path=$(sed -n 's/^module //p' "$dir/go.mod")
  replaced+=("-replace=$path=$PWD/$dir") dropped+=("-dropreplace=$path")
done 3< <(modules)

tidy() (
  cd "$1"
  cp go.mod "$work/go.mod"
  : >"$work/go.sum"
  [[ ! -e go.sum ]] || cp go.sum "$work/go.sum"
  go mod edit "${replaced[@]}" "$work/go.mod"
  go mod tidy -modfile="$work/go.mod" "${@:2}" || return
  [[ $# -eq 1 ]] || return 0
  go mod edit "${dropped[@]}" "$work/go.mod"
  cp "$work/go.mod" go.mod
  [[ ! -s $work/go.sum ]] || cp "$work/go.sum" go.sum
)

while read -r dir <&3; do
  part "$dir" tidy "$dir" "$@"
done 3< <(modules)
finish "every module"
