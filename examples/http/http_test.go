package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestStart runs the whole program with its stand-in for Redis, in real time.
// Most of its counts depend on the clock. TestTiers checks all counts on
// virtual time.
func TestStart(t *testing.T) {
	var out strings.Builder
	if err := start(t.Context(), &out, "", false); err != nil {
		t.Fatalf("%v; it printed:\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "health check                20 of 20 served") {
		t.Errorf("it printed:\n%s", out.String())
	}
}

func TestTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		handler, err := newService(hub)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		var out strings.Builder
		if err := play(&out, handler); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"anonymous                    5 of  8 served, the last 429",
			"anonymous, from elsewhere    1 of  1 served, the last 200",
			"made-up key, first address   0 of  1 served, the last 429",
			"free                        20 of 24 served, the last 429",
			"free, the key twice          0 of  4 served, the last 429",
			"pro                         40 of 40 served, the last 200",
			"pro, costly route            3 of  4 served, the last 429",
			"made-up keys, costly route   3 of  5 served, the last 429",
			"health check                20 of 20 served, the last 200",
			`"violated-policies":["anonymous"]`, `"violated-policies":["free"]`, `"violated-policies":["report"]`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is missing in:\n%s", want, out.String())
			}
		}
	})
}
