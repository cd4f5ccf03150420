package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be the tool of go vet.
func TestMain(m *testing.M) {
	if os.Getenv("LINT_TOOL") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestFindings(t *testing.T) {
	tests := []struct{ name, file, text, want string }{
		{"sound", "a.go", "package a\n", ""},
		{"vet", "a.go", "package a\n\nimport \"fmt\"\n\nfunc F() { fmt.Printf(\"%d\", \"x\") }\n", "Printf format %d"},
		{"staticcheck", "a.go", "package a\n\nfunc F(x int) bool { return x == x }\n", "identical expressions"},
		{"unused", "a.go", "package a\n\nfunc f() {}\n", "func f is unused"},
		{"errorlint", "a.go", "package a\n\nimport \"io\"\n\nfunc F(err error) bool { return err == io.ErrUnexpectedEOF }\n", "errors.Is"},
		{"errorlint in a test", "a_test.go", "package a\n\nimport \"io\"\n\nfunc F(err error) bool { return err == io.ErrUnexpectedEOF }\n", ""},
		{"nilerr", "a.go", "package a\n\nfunc F(err error) error {\n\tif err != nil {\n\t\treturn nil\n\t}\n\treturn err\n}\n", "error is not nil"},
		{"excepted", "a.go", "package a\n\nfunc f() {} //nolint:unused // kept for a reason\n", ""},
		{"without a reason", "a.go", "package a\n\nfunc f() {} //nolint:unused\n", "func f is unused"},
		{"another name", "a.go", "package a\n\nfunc f() {} //nolint:nilerr // kept for a reason\n", "func f is unused"},
	}
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module "+project+"/a\n\ngo 1.26.0\n")
	for i, tt := range tests {
		write(fmt.Sprintf("p%d/%s", i, tt.file), tt.text)
	}
	c := exec.Command("go", "vet", "-vettool="+os.Args[0], "./...")
	c.Dir = dir
	c.Env = append(os.Environ(), "LINT_TOOL=1")
	out, err := c.CombinedOutput()
	if err == nil {
		t.Error("go vet succeeded")
	}
	for i, tt := range tests {
		var found []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains("/"+line, fmt.Sprintf("/p%d/", i)) { // a cached finding has the folder of its first run
				found = append(found, line)
			}
		}
		if all := strings.Join(found, ""); tt.want == "" && all != "" || !strings.Contains(all, tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, all, tt.want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
