package main

import (
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
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"go.mod": "module " + project + "/a\n\ngo 1.26.0\n", tt.file: tt.text} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.Command("go", "vet", "-vettool="+os.Args[0], ".")
			c.Dir = dir
			c.Env = append(os.Environ(), "LINT_TOOL=1")
			out, err := c.CombinedOutput()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(string(out), tt.want)) {
				t.Errorf("%v, want %q:\n%s", err, tt.want, out)
			}
		})
	}
}
