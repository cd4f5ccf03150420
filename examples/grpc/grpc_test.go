package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestStart runs the whole program with its stand-in for Redis, in real time. The
// number of calls before a denial depends on the clock.
func TestStart(t *testing.T) {
	var out strings.Builder
	if err := start(t.Context(), &out, ""); err != nil {
		t.Fatalf("%v; it printed:\n%s", err, out.String())
	}
	for _, want := range []string{
		`(?m)^/demo.Weather/Now: \d+ calls served, then ResourceExhausted, retry after \d\.\d s, the limit "peer" is exceeded$`,
		`(?m)^/demo.Weather/Forecast: [1-9]\d* calls served, then ResourceExhausted, retry after \d\.\d s, the limit "forecast" is exceeded$`,
		`(?m)^With grpclimit.UnaryClient: 6 of 6 forecasts served, in \d+\.\d s$`,
		`(?m)^With the retries of gRPC: 6 of 6 forecasts served, in \d+\.\d s$`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s does not match:\n%s", want, out.String())
		}
	}
}
