# shellcheck shell=bash
# Common functions of the scripts; sourced, never run. Every script runs from the root of the repository.

# The go command asks git for the revision. That fails in a checkout that belongs to another user, for example a
# mounted one.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

# modules prints the directory of each Go module, the root first. A module is a directory with a go.mod.
modules() {
  find . \( -name '.?*' -o -name testdata -o -name vendor -o -name node_modules \) -prune -o -name go.mod -print |
    sed 's|/go\.mod$||' | LC_ALL=C sort
}

# go_files prints the Go files of every module, each followed by a NUL.
go_files() {
  find . \( -name '.?*' -o -name testdata -o -name vendor -o -name node_modules \) -prune -o -name '*.go' -type f -print0
}

# part NAME COMMAND... runs a command under a heading, prints its duration, and adds NAME to failed[] if it fails. The
# status is always 0, so that the following parts run. finish returns the verdict.
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

# finish WHAT prints the total time and the failed parts, if any. Its status is that of the script.
finish() {
  if ((${#failed[@]} == 0)); then
    printf '\n%s: ok, %d s in all\n' "$1" "$SECONDS"
    return 0
  fi
  printf '\n%s: FAILED, %d s in all:\n' "$1" "$SECONDS"
  printf '  - %s\n' "${failed[@]}"
  return 1
}

# as_root runs a command as root, and never asks for a password. The caller must define say, which prints the reason of
# a failure.
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
