package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestTopByRunning shows the keys of a limiter of calls in flight.
func TestTopByRunning(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	calls, err := hub.Concurrency(hybridlimit.Concurrent(8), hybrid.ConcurrencyConfig{Name: "calls"})
	if err != nil {
		t.Fatal(err)
	}
	for key, n := range map[string]int64{"a": 2, "b": 5, "c": 1} {
		permit, _, err := calls.AcquireN(t.Context(), key, n)
		if err != nil {
			t.Fatal(err)
		}
		defer permit.Release()
	}
	redistest.Eventually(t, 30*time.Second, "Redis knows all running calls", func() bool { return calls.Stats().Held == 8 })
	out := expect(t, url, []string{"top", "-name", "calls", "-by", "running"}, "KEY", "PERMITS HELD", "3 keys of calls, complete")
	if got := strings.Join(rows(out), " "); got != "b a c" {
		t.Errorf("running: %s\n%s", got, out)
	}
	out = expect(t, url, []string{"top", "-name", "calls", "-by", "running", "-n", "1"}, "3 keys of calls")
	if got := strings.Join(rows(out), " "); got != "b" {
		t.Errorf("the first: %s\n%s", got, out)
	}
	expect(t, url, []string{"top", "-name", "calls"}, "0 keys of calls, complete")
	finds(t, url, []string{"top", "-name", "nobody", "-by", "running"}, `no limiter "nobody" is known to this Redis`, "0 keys of nobody, complete")
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	if err := rdb.HSet(t.Context(), names.Held(0, "calls", "odd"), "", "9z").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(t.Context(), names.Held(0, "calls", "text"), "9z", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, url, []string{"top", "-name", "calls", "-by", "running"}, "3 keys of calls", "2 more keys have a state that this version cannot read.")
}
