package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// module writes a module with the given test files, and returns its folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example\n\ngo 1.26.0\n"
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// file returns a test file with the imports and the functions.
func file(imports, functions string) string {
	return "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n" + imports + ")\n\nvar _ = os.Args\n\n" + functions
}

const (
	worldlyImport = "\t_ \"testing/synctest\"\n"
	// once fails in its first run, and never again.
	once = `
func TestOnce(t *testing.T) {
	if _, err := os.Stat("seen"); err != nil {
		os.WriteFile("seen", nil, 0o600)
		t.Error("not seen before")
	}
}
`
	always = "func TestAlways(t *testing.T) { t.Error(\"wrong\") }\n"
	passes = "func TestPasses(t *testing.T) {}\n"
)

func TestVerdicts(t *testing.T) {
	tests := []struct {
		name   string
		file   string
		status int
		alone  string
	}{
		{"pass", file("", passes), 0, ""},
		{"always", file(worldlyImport, passes+always), 1, ""},
		{"once, with a server or virtual time", file(worldlyImport, passes+once), 0, "example.TestOnce\n"},
		{"once, pure", file("", passes+once), 1, ""},
		{"a binary that ends early", file(worldlyImport, "func TestExit(t *testing.T) { os.Exit(1) }\n"), 1, ""},
		{"a panic", file(worldlyImport, "func TestPanics(t *testing.T) { panic(1) }\n"), 1, ""},
		{"what does not compile", file(worldlyImport, "func TestA(t *testing.T) { undefined() }\n"), 1, ""},
		{"a race", file(worldlyImport, "func TestRaces(t *testing.T) {\n\tif _, err := os.Stat(\"seen\"); err != nil {\n"+
			"\t\tos.WriteFile(\"seen\", nil, 0o600)\n\t\tt.Error(\"WARNING: DATA RACE\")\n\t}\n}\n"), 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := module(t, map[string]string{"a_test.go": tt.file})
			names := filepath.Join(dir, "alone")
			t.Setenv("TESTRUN_ALONE", names)
			status, err := run(settings{concurrent: "with"}, []string{dir, "-count=1", "./..."})
			if err != nil || status != tt.status {
				t.Errorf("status %d, %v, want %d", status, err, tt.status)
			}
			if alone, _ := os.ReadFile(names); string(alone) != tt.alone {
				t.Errorf("passed only alone: %q, want %q", alone, tt.alone)
			}
		})
	}
}

// TestManyFailuresAreFinal fails more tests than run again.
func TestManyFailuresAreFinal(t *testing.T) {
	r := newReport(nil, false)
	for n := range most + 1 {
		r.retry = append(r.retry, failure{"p", fmt.Sprint("Test", n)})
	}
	if again := r.again(); len(again) > 0 || len(r.final) != most+1 {
		t.Errorf("%d run again, %d are final", len(again), len(r.final))
	}
	r = newReport(nil, false)
	r.retry = []failure{{"p", "TestA"}}
	if again := r.again(); len(again) != 1 || len(r.final) > 0 {
		t.Errorf("one failure: %d run again, %d are final", len(again), len(r.final))
	}
}

func TestConcurrentTestsAreChosen(t *testing.T) {
	dir := module(t, map[string]string{
		"a_test.go": file("", passes), "a_concurrent_test.go": file("", "func TestTogether(t *testing.T) {}\n"),
		"b/b_test.go": file("", "func TestB(t *testing.T) {}\n"),
	})
	for _, tt := range []struct {
		which     string
		pkgs, run int
	}{{"with", 2, 3}, {"without", 2, 2}, {"only", 1, 1}} {
		pkgs, err := list(dir, nil, []string{"./..."})
		if err != nil {
			t.Fatal(err)
		}
		chosen, flags, err := choose(tt.which, pkgs, []string{"-count=1"})
		if err != nil || len(chosen) != tt.pkgs {
			t.Fatalf("%s: %d packages, %v", tt.which, len(chosen), err)
		}
		r := newReport(chosen, false)
		if err := r.test(dir, flags, time.Time{}); err != nil || r.passed != tt.run || len(r.final) > 0 {
			t.Errorf("%s: %d passed, failed %v, %v, want %d", tt.which, r.passed, r.final, err, tt.run)
		}
	}
	if _, _, err := choose("some", nil, nil); err == nil {
		t.Error("-concurrent=some is accepted")
	}
	if _, _, err := choose("only", nil, []string{"-run=A"}); err == nil {
		t.Error("-run beside -concurrent=only is accepted")
	}
	same := []*pkg{
		{ImportPath: "p", tests: map[string]test{"TestA": {concurrent: true}}},
		{ImportPath: "q", tests: map[string]test{"TestA": {}, "TestB": {concurrent: true}}},
	}
	if _, _, err := choose("only", same, nil); err == nil {
		t.Error("a concurrent test with the name of another test is accepted")
	}
}

func TestSameOutput(t *testing.T) {
	first := `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"p","Test":"TestB/c","Output":"    a_test.go:7: no server\n"}
{"Action":"skip","Package":"p","Test":"TestB/c"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"pass","Package":"p","Elapsed":0.25}
`
	second := strings.ReplaceAll(first, `"p"`, `"q"`)
	var outs []string
	for _, in := range []string{first + second, strings.ReplaceAll(second+first, "0.25", "0.31")} {
		r := newReport([]*pkg{{ImportPath: "p"}, {ImportPath: "q"}}, false)
		var out bytes.Buffer
		if err := r.read(strings.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		outs = append(outs, out.String())
	}
	if outs[0] != outs[1] || !strings.Contains(outs[0], "ok\tp\t2 tests\n\tskipped: TestB/c (no server)\nok\tq\t2 tests\n") {
		t.Errorf("%q and %q", outs[0], outs[1])
	}
}

func TestFailuresAreWritten(t *testing.T) {
	t.Setenv("HYBRIDLIMIT_SEED", "17")
	dir, to := module(t, map[string]string{"a_test.go": file(worldlyImport, passes+always)}), t.TempDir()
	status, err := run(settings{concurrent: "with", failures: to}, []string{dir, "-count=1", "./..."})
	if err != nil || status != 1 {
		t.Errorf("status %d, %v", status, err)
	}
	files, err := os.ReadDir(to)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(filepath.Join(to, files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"revision: ", "test: example.TestAlways\n", "seed: 17\n", "a_test.go", "wrong"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestUntil(t *testing.T) {
	dir := module(t, map[string]string{"a_test.go": file("\t\"time\"\n", "func TestSleeps(t *testing.T) { time.Sleep(time.Minute) }\n")})
	status, err := run(settings{concurrent: "with", until: time.Now().Add(time.Second)}, []string{dir, "-count=1", "./..."})
	if err != nil || status != 3 {
		t.Errorf("status %d, %v, want 3", status, err)
	}
}

func TestSplit(t *testing.T) {
	flags, patterns := split([]string{"-race", "./a", "-p=2", "b"})
	if !slices.Equal(flags, []string{"-race", "-p=2"}) || !slices.Equal(patterns, []string{"./a", "b"}) {
		t.Errorf("%q %q", flags, patterns)
	}
}
