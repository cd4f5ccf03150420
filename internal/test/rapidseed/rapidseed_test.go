package rapidseed_test

import (
	"flag"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

// The checks of rapid draw the same values in each run.
func TestRapidBeginsAtTheSeed(t *testing.T) {
	if got := flag.Lookup("rapid.seed").Value.String(); os.Getenv("HYBRIDLIMIT_SEED") == "" && got != "1" {
		t.Errorf("-rapid.seed is %s, want 1", got)
	}
	drawn := func() (out []int64) {
		rapid.Check(t, func(t *rapid.T) { out = append(out, rapid.Int64().Draw(t, "x")) })
		return out
	}
	if one, two := drawn(), drawn(); !slices.Equal(one, two) {
		t.Errorf("%v\n%v", one, two)
	}
}
