package hybridlimit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestMemoryOfChoosing compares the memory of a key in docs/choosing.md with the measured
// figures: those of lua/README.md for Redis, and of bench/RESULTS.md for a process.
func TestMemoryOfChoosing(t *testing.T) {
	page := choosing(t)
	read := func(file, pattern string) []string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("%s has no match for %s", file, pattern)
		}
		return m[1:]
	}
	bucket := read("lua/README.md", `(?m)^\| bucket, queue or window, up to an hour old.* \| (\d+) \|$`)[0]
	log := read("lua/README.md", `(?m)^\| log of 1 / 100 / 1000 / 10,000 entries \| \d+ / \d+ / ([\d,]+) /`)[0]
	for _, want := range []string{"is " + bucket + " bytes and its name", "are " + bucket + " MB", log + " bytes for a thousand", "keys × (" + bucket + " + name)"} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/choosing.md does not say %q", want)
		}
	}
	said := number(t, read("docs/choosing.md", `a key takes about ([\d.]+) KB`)[0])
	measured := number(t, read("bench/RESULTS.md", `(?m)^\| bytes of memory for a key, of 1 000 000 \| \d+ \| (\d+) \|`)[0])
	if measured > said*1000 || measured < said*1000/2 {
		t.Errorf("a key in a process: %v KB, measured %v bytes", said, measured)
	}
}
