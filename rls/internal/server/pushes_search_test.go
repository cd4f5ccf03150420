//go:build search

package server

import (
	"strconv"
	"strings"
	"testing"

	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// resourcesOf returns a configuration as resources.
func resourcesOf(t *testing.T, c *config.RateLimitConfig) []*anypb.Any {
	t.Helper()
	one, err := anypb.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return []*anypb.Any{one}
}

// valueOf returns the value of a metric without labels.
func valueOf(t *testing.T, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
