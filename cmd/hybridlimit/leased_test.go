package main

import (
	"strconv"
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
	expect(t, url, []string{"list"}, "hot: 1 processes, limit leased 1/100h burst 50, switch normal", `  "k"  0.0 left`)
	expect(t, url, []string{"list", "-name", "hot", "-limit", "1/h"}, `"k"  0.0 left`, "- (a leased rate)")
	digest := lua.Names{}.Digest("hot", "k")
	expect(t, url, []string{"inspect", "-name", "hot", "-digest", digest}, `hot "k": when last written`, "Redis had 0.0 of 50 units left", "key_digest  "+digest)
	finds(t, url, []string{"inspect", "-name", "hat", "-digest", digest}, `no key of "hat" in Redis has this digest`)
	finds(t, url, []string{"list", "-name", "ho"}, `no limiter "ho" is known to this Redis`)
	for limit, why := range map[string]string{"5/s fixed window": "its algorithm is fixed window, but the processes of \"hot\" have token bucket", "2000000000/s": "the processes of \"hot\" lease rates, and need a burst and a rate of at most 10⁹ units"} {
		finds(t, url, []string{"limit", "-name", "hot", limit}, "nothing was changed: "+why)
		finds(t, url, []string{"limit", "-name", "hot", "-for-key", "k", limit}, "nothing was changed: "+why)
	}
	expect(t, url, []string{"limit", "-name", "hot", "blocked"}, "hot: blocked, was: no limit of the fleet")
	expect(t, url, []string{"limit", "-name", "hot", "-clear"}, "was: blocked")
	expect(t, url, []string{"reset", "-name", "hot", "k"}, `hot "k": the bucket of the leased rate is full again; before: when last written`, "Redis had 0.0 of 50 units left")
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	s, ok := wire.DecodeRate(rdb.Get(t.Context(), names.Rate(names.Tag("k"), "hot", "k")).Val())
	if !ok || s.Level < 49e6 {
		t.Errorf("after reset: %+v", s)
	}
}

// TestTopOfLeasedRates checks that top ranks keys whose rates are leased beside others, in a Redis with hashed keys too.
func TestTopOfLeasedRates(t *testing.T) {
	t.Parallel()
	for _, secret := range []hybridlimit.Secret{"", "0123456789abcdef0123456789abcdef"} {
		srv := redistest.New(t)
		url, rdb := urlOf(srv), srv.Client(t)
		hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{FleetSize: 1, HashKeys: secret})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		hot, err := hub.RateLeases(hybridlimit.PerSecond(100), hybrid.RateLeaseConfig{Name: "hot"})
		if err != nil {
			t.Fatal(err)
		}
		plain, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "hits"})
		if err != nil {
			t.Fatal(err)
		}
		stored := func(name, key string) string { return lua.Names{HashKeys: secret}.Stored(name, key) }
		if _, err := plain.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags, HashKeys: secret}
		for _, key := range []string{"k1", "k2"} {
			redistest.Eventually(t, 10*time.Second, "a leased rate", func() bool {
				if _, err := hot.Allow(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				s, _ := wire.DecodeRate(rdb.Get(t.Context(), names.Rate(names.Tag(key), "hot", key)).Val())
				return s.Leased > 0
			})
		}
		for _, key := range []string{"k1", "k2"} { // the busier one is first
			expect(t, url, []string{"top", "-name", "hot"}, strconv.Quote(stored("hot", key)), "2 keys of hot, complete")
		}
		expect(t, url, []string{"top", "-by", "emptiest"}, "hits: limit 100/h", strconv.Quote(stored("hits", "k")), "hot: limit leased 100/s", "3 keys of all limiters, complete")
		expect(t, url, []string{"top", "-json", "-name", "hot"}, `"leased_rate": true`)
		digest := lua.Names{HashKeys: secret}.Digest("hot", "k1")
		expect(t, url, []string{"inspect", "-name", "hot", "-digest", digest}, "of 100 units left, and processes had leased")
		expect(t, url, []string{"reset", "-name", "hot", "-digest", digest}, "the bucket of the leased rate is full again")
	}
}
