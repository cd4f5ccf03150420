package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestLeasedKey inspects and resets a key whose rate is leased, by its text and by its digest.
func TestLeasedKey(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{FleetSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	hot, err := hub.RateLeases(hybridlimit.TokenBucket(1, 100*time.Hour, 50), hybrid.RateLeaseConfig{Name: "hot"})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := hot.AllowN(t.Context(), "k", 50); err != nil || !res.Allowed {
		t.Fatal(res, err)
	}
	expect(t, url, []string{"inspect", "-name", "hot", "k"}, `hot "k": when last written, at 20`, "Redis had 0.0 of 50 units left", "units a second", `:@rate:hot:k"`, "expires     in")
	expect(t, url, []string{"inspect", "-name", "hot", "-limit", "1/h", "k"}, "Redis had 0.0 of 50 units left")
	if status, _, errOut := cli(t, url, "inspect", "-name", "hot", "-limit", "1/h", "-floor", "0.2", "k"); status == 0 || !strings.Contains(errOut, "-floor (0.2) must be absent: a leased rate has no floors") {
		t.Errorf("a floor: status %d, %s", status, errOut)
	}
	expect(t, url, []string{"list"}, "hot: 1 processes, limit leased 1/100h burst 50, switch normal")
	expect(t, url, []string{"reset", "-name", "hot", "k"}, `hot "k": the bucket of the leased rate is full again; before: when last written`, "Redis had 0.0 of 50 units left")
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	s, ok := wire.DecodeRate(rdb.Get(t.Context(), names.Rate(names.Tag("k"), "hot", "k")).Val())
	if !ok || s.Level < 49e6 {
		t.Errorf("after reset: %+v", s)
	}
}
