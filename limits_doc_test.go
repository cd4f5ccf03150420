package hybridlimit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// docs/limits.md promises what each text means.
func TestLimitsInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(page), "```limits\n")
	list, _, closed := strings.Cut(list, "```")
	if !found || !closed || list == "" {
		t.Fatal("there is no list of limits")
	}
	for line := range strings.Lines(list) {
		text, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		got, err := hybridlimit.ParseLimit(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %v and %v, want %s", text, got, err, want)
		}
		roundTrip(t, got)
	}
}
