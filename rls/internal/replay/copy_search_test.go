//go:build search

package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hybridlimit/hybridlimit/rls/internal/parity"
)

var update = flag.Bool("update", false, "write go.mod and go.sum of the copy into adapter/, with go mod tidy")

// The tests that are replayed.
const (
	module  = "github.com/envoyproxy/ratelimit"
	version = "v1.4.1-0.20260122083618-" + parity.Replayed
	sum     = "h1:nEi1OH2qhE8NtcuBgO/uKpTw/P0nVu4i8mZvL6oD9CQ="
	// place is the path of the copy. It is below the path of this module, so that the copy may import its internal
	// packages.
	place = "github.com/hybridlimit/hybridlimit/rls/theirs"
)

// theirs returns the directory of the module in the module cache.
var theirs = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module+"@"+version)
	cmd.Dir = os.TempDir() // not in a module: its go.sum does not have this one
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if bad := json.Unmarshal(out, &got); bad != nil {
		return "", errors.Join(err, bad)
	}
	switch {
	case got.Error != "":
		return "", errors.New(got.Error)
	case got.Sum != sum:
		return "", fmt.Errorf("%s@%s has the sum %s, want %s", module, version, got.Sum, sum)
	}
	return got.Dir, nil
})

// source returns theirs. Without the module and a network the test is skipped, and fails if CI is set.
func source(t *testing.T) string {
	t.Helper()
	dir, err := theirs()
	switch {
	case err == nil:
		return dir
	case os.Getenv("CI") != "":
		t.Fatalf("CI is set, so this is a failure: %s cannot be had: %v", module, err)
	}
	t.Skipf("SKIPPED: %s CANNOT BE HAD, SO ITS TESTS ARE NOT REPLAYED: %v", module, err)
	return ""
}

// adapters are the files that the copy has instead of those of their module, or in addition. Their configuration is
// in src/original too, for the comparison with it.
var adapters = map[string]string{
	"test/differential/differential_test.go": "differential_test.go.txt",
	"src/config/config_impl.go":              "config.go.txt",
	"src/service/ratelimit.go":               "service.go.txt",
}

// duplicate returns a directory with their module under the path place, with the adapters.
func duplicate(t *testing.T) string {
	t.Helper()
	from, to := source(t), t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, path)
		name = filepath.ToSlash(name)
		if err != nil || !strings.HasPrefix(name, "src/") && !strings.HasPrefix(name, "test/") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if file, ok := strings.CutPrefix(name, "src/config/"); ok {
			err = write(filepath.Join(to, "src", "original", file), bytes.Replace(data, []byte("package config"), []byte("package original"), 1))
		}
		if adapters[name] != "" {
			return err
		}
		return errors.Join(err, write(filepath.Join(to, name), data))
	})
	for name, adapter := range adapters {
		data, bad := os.ReadFile(filepath.Join("adapter", adapter))
		err = errors.Join(err, bad, write(filepath.Join(to, name), data))
	}
	if err != nil {
		t.Fatal(err)
	}
	settle(t, to)
	return to
}

// write writes a file. Imports of their module become imports of the copy.
func write(path string, data []byte) error {
	if strings.HasSuffix(path, ".go") {
		data = bytes.ReplaceAll(data, []byte(`"`+module+`/`), []byte(`"`+place+`/`))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// settle makes the copy a module with the versions in adapter/go.mod.txt.
func settle(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{"github.com/hybridlimit/hybridlimit": root, "github.com/hybridlimit/hybridlimit/rls": filepath.Join(root, "rls")}
	mod := filepath.Join("adapter", "go.mod.txt")
	sums := filepath.Join("adapter", "go.sum.txt")
	if *update {
		data, err := os.ReadFile(filepath.Join(source(t), "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.Replace(data, []byte("module "+module), []byte("module "+place), 1)
		err = errors.Join(write(filepath.Join(dir, "go.mod"), data), write(filepath.Join(dir, "go.sum"), nil))
		if err != nil {
			t.Fatal(err)
		}
	} else {
		for name, to := range map[string]string{mod: "go.mod", sums: "go.sum"} {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := write(filepath.Join(dir, to), data); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(ours)) {
		run(t, dir, "mod", "edit", "-require", path+"@v0.1.0", "-replace", path+"="+ours[path])
	}
	if !*update {
		return
	}
	run(t, dir, "mod", "tidy")
	for name, from := range map[string]string{mod: "go.mod", sums: "go.sum"} {
		data, err := os.ReadFile(filepath.Join(dir, from))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range ours {
			data = bytes.ReplaceAll(data, []byte(path), []byte("/checkout"))
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs the go command.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// result is the end of a test.
type result struct {
	action string // pass, fail or skip
	output string
}

// exported returns the option of go test that adds adapter/export.go.txt to package rls: the composition of answers
// is not exported.
func exported(t *testing.T) string {
	t.Helper()
	into, err := filepath.Abs("../../replay_export.go")
	from, bad := filepath.Abs(filepath.Join("adapter", "export.go.txt"))
	text, wrong := json.Marshal(map[string]map[string]string{"Replace": {into: from}})
	name := filepath.Join(t.TempDir(), "overlay.json")
	if err := errors.Join(err, bad, wrong, os.WriteFile(name, text, 0o644)); err != nil {
		t.Fatal(err)
	}
	return "-overlay=" + name
}

// row is the expectation of one of their tests. The zero row: it passes.
type row struct {
	differs   string // it fails on purpose, for this reason
	elsewhere string // it does not run: its subject is no part of the package that is tested
}

// rowsOf returns the rows of tests that pass, and others.
func rowsOf(others map[string]row, passing ...string) map[string]row {
	for _, name := range passing {
		others[name] = row{}
	}
	return others
}

// test runs the tests of packages in a directory, and returns their results by
// "package.Test/subtest". Tests that fail on purpose run alone, because some of them panic.
func test(t *testing.T, dir string, rows map[string]row, packages ...string) map[string]result {
	t.Helper()
	results := map[string]result{}
	option := exported(t)
	var apart []string
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		pkg, name, _ := strings.Cut(name, ".")
		switch r := rows[pkg+"."+name]; {
		case r == row{}:
			continue
		case r.elsewhere != "":
			if !testsOf(t, filepath.Join(dir, pkg))[name] {
				t.Errorf("%s.%s has a row, and is no test", pkg, name)
			}
		case r.differs != "":
			goTest(t, dir, results, option, "-run=^"+name+"$", "./"+pkg)
		}
		apart = append(apart, "^"+name+"$")
	}
	skip := "-skip=" + strings.Join(apart, "|")
	if len(apart) == 0 {
		skip = "-skip=^$"
	}
	goTest(t, dir, results, append([]string{option, skip}, packages...)...)
	return results
}

// goTest runs go test, and adds the results of the tests.
func goTest(t *testing.T, dir string, results map[string]result, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1", "-trimpath", "-mod=readonly"}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	before := len(results)
	output := map[string]*strings.Builder{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var e struct{ Action, Package, Test, Output string }
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		name := strings.TrimPrefix(e.Package, place+"/") + "." + e.Test
		if output[name] == nil {
			output[name] = &strings.Builder{}
		}
		output[name].WriteString(e.Output)
		switch {
		case e.Action == "build-output":
			t.Log(e.Output)
		case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		case e.Test != "":
			results[name] = result{e.Action, output[name].String()}
		case e.Action != "pass": // it does not compile, or has a failed test
			t.Logf("%s %s\n%s", name, e.Action, output[name])
		}
	}
	if len(results) == before {
		t.Fatalf("no test ran: %v\n%s\nIf versions in go.mod changed: go test ./internal/replay -update", err, stderr.String())
	}
}

// compare fails for each test without a row, each row without a test, and each result that is not that of its row.
func compare(t *testing.T, rows map[string]row, results map[string]result) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(results)) {
		got := results[name]
		want, ok := rows[name]
		switch {
		case !ok:
			t.Errorf("%s has no row (%s)\n%s", name, got.action, got.output)
		case want == row{} && got.action != "pass":
			t.Errorf("%s: %s\n%s", name, got.action, got.output)
		case want.differs != "" && got.action != "fail":
			t.Errorf("%s: %s, and its row says that it differs: %s", name, got.action, want.differs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if _, ok := results[name]; !ok && rows[name].elsewhere == "" {
			t.Errorf("%s has a row, and did not run", name)
		}
	}
}
