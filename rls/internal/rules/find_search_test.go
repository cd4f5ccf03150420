//go:build search

package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// The time of Find grows with the bytes of a descriptor, and not with their square: 32 entries of 1 MB do not take much
// longer than eight times four of them, which are as many bytes.
func TestFindIsLinear(t *testing.T) {
	s, of := deep(t)
	ratio := func() float64 {
		fastest := func(d *ratelimit.RateLimitDescriptor, times int) time.Duration {
			best := time.Hour
			for range 3 {
				start := time.Now()
				for range times {
					s.Find("d", d)
				}
				best = min(best, time.Since(start))
			}
			return best
		}
		return float64(fastest(of(32), 1)) / float64(fastest(of(4), 8))
	}
	// Quadratic time would make this 8. A busy machine slows both: the least of some tries counts.
	least := ratio()
	for range 4 {
		if least < 3 {
			return
		}
		least = min(least, ratio())
	}
	t.Errorf("32 entries take %.1f times as long as eight times 4 entries", least)
}

// TestManyExpressions bounds the time of hostile values: as many slow expressions as a list may have, and all entries of a
// descriptor.
func TestManyExpressions(t *testing.T) {
	list := func(n int, inside string) string {
		text := ""
		for i := range n {
			text += fmt.Sprintf("{key: k, value_regex: \"(.*)(.*)(x?){50}[^b]y%d\", rate_limit: {unit: day, requests_per_unit: 1}%s},", i, inside)
		}
		return "[" + text + "]"
	}
	_, err := rules.Parse([]rules.File{{Name: "a", Data: []byte("domain: d\ndescriptors: " + list(100, "") + "\n")}}, false)
	if err == nil || !strings.Contains(err.Error(), "make programs of more than 1000 steps") {
		t.Errorf("100 slow expressions: %v", err)
	}
	s := parse(t, "domain: d\ndescriptors: "+list(4, "")+"\n")
	for _, value := range []string{strings.Repeat("a", 1024), strings.Repeat("xy", 512), strings.Repeat("a", 60<<10)} {
		began := time.Now()
		s.Find("d", entries("k", value))
		took := time.Since(began)
		t.Logf("%d bytes took %v", len(value), took)
		if took > 500*time.Millisecond {
			t.Errorf("%d bytes took %v", len(value), took)
		}
	}
}

// TestManyStars bounds the time of a hostile value among a thousand patterns that it almost fits.
func TestManyStars(t *testing.T) {
	text := "domain: d\ndescriptors:\n"
	for i := range 1000 {
		text += fmt.Sprintf("- {key: k, value: \"*ab%d*\", rate_limit: {unit: day, requests_per_unit: 1}}\n", 1000+i)
	}
	s := parse(t, text)
	for _, value := range []string{strings.Repeat("b", 60<<10), strings.Repeat("ab", 30<<10), strings.Repeat("a", 60<<10)} {
		began := time.Now()
		s.Find("d", entries("k", value))
		took := time.Since(began)
		if t.Logf("%d bytes took %v", len(value), took); took > time.Second {
			t.Errorf("%d bytes took %v", len(value), took)
		}
	}
}
