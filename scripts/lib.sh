# shellcheck shell=bash
# What the scripts share; sourced, never run. Every script runs from the root of the repository.

# The go command asks git for the revision, which fails in a checkout that belongs to another user (a mounted one, say).
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

# modules prints the directory of each Go module, the root first: a module takes part by having a go.mod.
modules() {
  find . \( -name '.?*' -o -name testdata -o -name vendor -o -name node_modules \) -prune -o -name go.mod -print |
    sed 's|/go\.mod$||' | LC_ALL=C sort
}

# go_files prints the Go files of every module, each ended by a NUL.
go_files() {
  find . \( -name '.?*' -o -name testdata -o -name vendor -o -name node_modules \) -prune -o -name '*.go' -type f -print0
}

# part NAME COMMAND... runs a command under a heading, prints how long it took, and remembers NAME in failed[] if it fails.
# The status is always 0, so that one failure does not hide the next; finish has the verdict.
failed=()
part() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '\n==> %s\n' "$name"
  "$@" || status=$?
  if ((status == 0)); then
    printf '    %s: ok, %d s\n' "$name" $((SECONDS - start))
  else
    printf '    %s: FAILED (status %d), %d s\n' "$name" "$status" $((SECONDS - start))
    failed+=("$name")
  fi
}

# finish WHAT prints the total time and, if any part has failed, which; its status is the script's.
finish() {
  if ((${#failed[@]} == 0)); then
    printf '\n%s: ok, %d s in all\n' "$1" "$SECONDS"
    return 0
  fi
  printf '\n%s: FAILED, %d s in all:\n' "$1" "$SECONDS"
  printf '  - %s\n' "${failed[@]}"
  return 1
}

# as_root runs a command as root, without ever asking for a password. Whoever calls it has say, which tells why it could not.
as_root() {
  if (($(id -u) == 0)); then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo -n "$@"
  else
    say "not root, and no sudo"
    return 1
  fi
}
