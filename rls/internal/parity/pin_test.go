package parity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/rls/internal/parity"
)

// TestPin compares the hash in PIN with the cases, so that an edited answer is found. Record writes both.
func TestPin(t *testing.T) {
	pin, err := parity.ReadPin("testdata")
	if err != nil {
		t.Fatal(err)
	}
	hash, err := parity.Hash("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if len(pin.Commit) != 40 || len(pin.Date) != 10 || hash != pin.Hash {
		t.Errorf("PIN is %+v, and the cases have the hash %s: go run ./internal/parity/record -from CLONE", pin, hash)
	}
}

// TestCasesAreAsWritten reads each case and writes it, so that no line is without meaning.
func TestCasesAreAsWritten(t *testing.T) {
	for _, c := range cases(t) {
		if c.Head == "" || len(c.Files) == 0 || c.Refused == (len(c.Rounds) > 0) {
			t.Errorf("%s is not complete", c.Name)
		}
		for _, round := range c.Rounds {
			for _, p := range round {
				if !strings.HasPrefix(p.Answer, "OK |") && !strings.HasPrefix(p.Answer, "OVER_LIMIT |") {
					t.Errorf("%s: %s has the answer %q", c.Name, parity.JSON(p.Request), p.Answer)
				}
			}
		}
	}
}

// TestPageNamesTheNumbers compares the sentence of docs/envoy.md with the cases.
func TestPageNamesTheNumbers(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "envoy.md"))
	if err != nil {
		t.Fatal(err)
	}
	answers, accepted := 0, 0
	for _, c := range cases(t) {
		if !c.Refused {
			accepted++
		}
		for _, round := range c.Rounds {
			answers += len(round)
		}
	}
	if want := fmt.Sprintf("compares %d answers that envoyproxy/ratelimit gave to %d configurations", answers, accepted); !strings.Contains(string(page), want) {
		t.Errorf("docs/envoy.md must say: %s", want)
	}
}
