package wire_test

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// TestDecodeRate reads states of leased rates, also those of later versions.
func TestDecodeRate(t *testing.T) {
	const good = "1 11 12 3 -4 5000000 6000000 7 8 9 10 0 0 0 0 0 0 0 0"
	want := wire.RateState{Terms: ratelease.Terms{Rate: 5_000_000, Burst: 6_000_000}, Last: 12, Level: -4, Leased: 15, Depth: 19}
	for _, text := range []string{good, good + " y1f", good + " b-2 y1f"} {
		if got, ok := wire.DecodeRate(text); !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "schema": "2" + good[1:], "short": strings.TrimSuffix(good, " 0"), "more": good + " 0", "negative": strings.Replace(good, " 12 ", " -12 ", 1),
		"no rate": strings.Replace(good, "5000000", "0", 1), "letter": good + " y", "large": good + " Y1", "tail": good + " y" + strings.Repeat("f", 256),
		"huge": good + strings.Repeat("9", 30), "word": strings.Replace(good, " 3 ", " x ", 1),
	} {
		if got, ok := wire.DecodeRate(text); ok {
			t.Errorf("%s: %q is read as %+v", name, text, got)
		}
	}
}
