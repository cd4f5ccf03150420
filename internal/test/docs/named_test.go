package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTestsInTheDocumentsExist checks that every test that a document names exists.
func TestTestsInTheDocumentsExist(t *testing.T) {
	defined := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			defined[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range append(pages, "README.md", "SECURITY.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1) {
			if named++; !defined[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}

// TestFilesInContributingExist checks that every Go and Lua file that CONTRIBUTING.md names exists: by its path, or by its name alone
// in the folder of a row.
func TestFilesInContributingExist(t *testing.T) {
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names[path], names[filepath.Base(path)] = true, true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([\\w/.-]+\\.(?:go|lua))`").FindAllStringSubmatch(string(text), -1)
	for _, m := range named {
		if !names[m[1]] {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("CONTRIBUTING.md names %d files: has its table moved?", len(named))
	}
}
