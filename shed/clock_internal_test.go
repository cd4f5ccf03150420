package shed

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNoWallClock reads the source. Times keep their monotonic reading, so a step of
// the wall clock changes nothing.
func TestNoWallClock(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := wall.Find(text); found != nil && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s: %s drops the monotonic reading", name, found)
		}
	}
	for _, bad := range []string{"now.Unix()", "t.UnixNano()", "now.UTC()", "t.Round(0)", "t.Truncate(time.Second)", "time.Unix(1, 0)"} {
		if !wall.MatchString(bad) {
			t.Errorf("%s is not found", bad)
		}
	}
}

var wall = regexp.MustCompile(`\.(Unix\w*|UTC|Local|In|Round|Truncate|AddDate|Date)\((0|time\.Second|1, 0)?\)`)
