# shellcheck shell=bash
# Common functions of the scripts; sourced, never run. Every script runs from the root of the repository.

# The go command asks git for the revision. That fails in a checkout that belongs to another user, for example a
# mounted one. With -trimpath a second clone finds all of its packages in the build cache.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -trimpath"

# lean has the flags of the compiler that the gate adds. Nobody looks at its programs with a debugger, and without tables
# for one the compiler needs a sixth less time. Make test is without them: it shares the build cache with go run.
lean=
if [[ -n ${GATE:-} ]]; then
  lean='-dwarf=false'
  GOFLAGS+=" -gcflags=all=$lean"
fi

# tools is a folder for programs of this project that the scripts build; it goes with the script.
tools=

# build NAME builds a program of this project into tools, once: lint, typecheck, release or testrun.
build() {
  local name=$1
  [[ -n $tools ]] || { tools=$(mktemp -d) && trap 'rm -rf "$tools"' EXIT; }
  [[ ! -x $tools/$name ]] || return 0
  case $name in
  lint) (cd internal/test/lint && go build -o "$tools/lint" .) ;;
  typecheck) (cd internal/test/lint && go build -o "$tools/typecheck" ./typecheck) ;;
  release) (cd internal/test/release && go build -o "$tools/release" .) ;;
  testrun) go build -o "$tools/testrun" ./internal/test/testrun ;;
  esac
}

# modules prints the directory of each Go module, the root first. A module is a directory with a go.mod.
modules() {
  find . \( -name '.?*' -o -name testdata -o -name vendor -o -name node_modules \) -prune -o -name go.mod -print |
    sed 's|/go\.mod$||' | LC_ALL=C sort
}

# searched matches the modules whose tests only make search runs: other limiters, faults on real processes, the page of the
# playground in a browser. The gate checks their types.
searched='^\./(bench|bench/chaos|internal/test/e2e/ui)$'

# raced matches the modules that the gate tests under the race detector. The dependencies of the others, gRPC and its
# messages, take 190 s of processor time to compile for it. Make search races these modules too.
raced='^\.(/shed)?$'

# shellcheck disable=SC2034 # the scripts use it
# The flags of the race detector. The interpreter of the Lua scripts is left out: Redis in memory runs it under its own
# lock, on no data of this project.
racing=(-race "-gcflags=github.com/yuin/gopher-lua/...=-race=false $lean")

# gated prints the modules whose tests the gate runs.
gated() { modules | grep -Ev "$searched"; }

# tested MODULE [GO LIST FLAGS] prints the packages of a module that have tests, hybrid and global first: they take
# longest, so they must not begin last.
tested() (
  cd "$1"
  shift
  go list "$@" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... |
    awk '/\/(hybrid|global|server)$/ { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }'
)

# cores is the number of processors; the tests of so many packages run at once.
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
P=${P:-$((cores < 4 ? cores : 4))}

# go_files prints the Go files of every module, each followed by a NUL.
go_files() {
  find . \( -name '.?*' -o -name testdata -o -name vendor -o -name node_modules \) -prune -o -name '*.go' -type f -print0
}

# part NAME COMMAND... runs a command under a heading, and adds NAME to failed[] if it fails. The status is always 0, so that
# the following parts run. finish returns the verdict. With TIMES=no no duration is printed, so that two runs are alike.
failed=()
part() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '\n==> %s\n' "$name"
  "$@" || status=$?
  if ((status == 0)); then
    printf '    %s: ok%s\n' "$name" "$(took "$start")"
  else
    printf '    %s: FAILED (status %d)%s\n' "$name" "$status" "$(took "$start")"
    failed+=("$name")
  fi
}

took() { [[ ${TIMES:-yes} == no ]] || printf ', %d s' $((SECONDS - $1)); }

# finish WHAT prints the failed parts, if any. Its status is that of the script.
finish() {
  if ((${#failed[@]} == 0)); then
    printf '\n%s: ok%s\n' "$1" "$(took 0)"
    return 0
  fi
  printf '\n%s: FAILED%s:\n' "$1" "$(took 0)"
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
