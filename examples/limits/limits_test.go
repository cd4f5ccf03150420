package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// The README shows the output of the program.
func TestOutput(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(page), "$ go run ./examples/limits\n")
	want, _, _ = strings.Cut(want, "```")
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := redistest.NewBubble(t)
		if err := play(t.Context(), &out, b.Client(nil), filepath.Join(t.TempDir(), "limits.json")); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("the program prints\n%s\nthe README has\n%s", out.String(), want)
		}
	})
}

// The whole program, in real time.
func TestStart(t *testing.T) {
	var out strings.Builder
	if err := start(t.Context(), &out); err != nil || strings.Count(out.String(), "calls admitted") != 7 {
		t.Errorf("%v; it printed\n%s", err, out.String())
	}
}
