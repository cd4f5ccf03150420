package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with the given files, and returns its folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example\n\ngo 1.26.0\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestErrorsOfAModule(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string // a part of the only line; "" for none
	}{
		{"sound", map[string]string{"a.go": "package a\n\nfunc f() {}\n"}, ""},
		{"in a body", map[string]string{"a.go": "package a\n\nfunc f() int { return \"\" }\n"}, `cannot use ""`},
		{
			"in a test", map[string]string{
				"a.go":      "package a\n\nfunc f() {}\n",
				"a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { g() }\n",
			}, "undefined: g",
		},
		{
			"in a search", map[string]string{
				"a.go":             "package a\n\nfunc f() {}\n",
				"a_search_test.go": "//go:build search\n\npackage a\n\nvar _ = g\n",
			}, "undefined: g",
		},
		{"of a dependency", map[string]string{"a.go": "package a\n\nimport \"strings\"\n\nvar _ = strings.Nothing\n"}, "strings.Nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := module(t, tt.files)
			found, err := check(dir, false, []string{dir})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(found, "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNothingToCheckIsAnError(t *testing.T) {
	if _, err := check(".", false, nil); err == nil {
		t.Error("without a module there is no error")
	}
	dir := module(t, map[string]string{})
	if found, err := check(dir, false, []string{dir}); err == nil {
		t.Errorf("an empty module gives %q and no error", found)
	}
}

func TestBlocks(t *testing.T) {
	page := "text\n\n<!-- go: r *http.Request -->\n\n```go\nx := r.NoSuchField\n```\n\n```go\nn := 1\n```\n\n" +
		"```\nnot go\n```\n\n```go\nerr := errors.Nothing()\n```\n\n```go\nn  := 2\n```\n"
	found := blocks("p.md", page)
	if len(found) != 4 || found[0].line != 5 || found[0].given == "" || found[1].given != "" {
		t.Fatalf("%+v", found)
	}
	dir := module(t, map[string]string{})
	lines, err := checkBlocks(dir, dir, found)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{"p.md:5: ", "NoSuchField", "p.md:17: undefined: errors.Nothing", "p.md:21: not formatted"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
	if len(lines) != 3 {
		t.Errorf("found\n%s", all)
	}
}
