//go:build search

package frameworks

import (
	"os"
	"strings"
	"testing"
)

// source returns the declarations of a file: the text after its imports.
func source(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, declarations, ok := strings.Cut(string(text), "\n)\n\n")
	if !ok {
		t.Fatalf("%s has no imports", file)
	}
	return declarations
}

// TestPageHasTheAdapters compares the tested adapters with docs/http.md.
func TestPageHasTheAdapters(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, file := range []string{"ginlimit/gin.go", "echolimit/echo.go", "fiberlimit/fiber.go", "connectlimit/connect.go"} {
		if !strings.Contains(page, "\n```go\n"+source(t, file)+"```\n") {
			t.Errorf("docs/http.md differs from %s", file)
		}
	}

	// The page describes the other versions by their differences.
	for _, other := range []struct {
		file, of string
		swaps    [][2]string
	}{
		{"echo5limit/echo.go", "echolimit/echo.go", [][2]string{{"echo.Context", "*echo.Context"}}},
		{"fiber2limit/fiber.go", "fiberlimit/fiber.go", [][2]string{
			{"fiber.Ctx", "*fiber.Ctx"},
			{"c.Context()", "c.UserContext()"},
			{"c.RequestCtx()", "c.Context()"},
		}},
	} {
		want := source(t, other.of)
		for _, swap := range other.swaps {
			want = strings.ReplaceAll(want, swap[0], swap[1])
			if !strings.Contains(page, "`"+swap[0]+"` by `"+swap[1]+"`") {
				t.Errorf("docs/http.md lacks the difference %q of %s", swap, other.file)
			}
		}
		if got := source(t, other.file); got != want {
			t.Errorf("%s is not %s with its differences:\n%s", other.file, other.of, got)
		}
	}
}
