package httplimit_test

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// A request that costs more than the burst is denied, and its response has the
// units left: with one limit, and with several that are asked together.
func TestCostsAboveTheBurstTellWhatIsLeft(t *testing.T) {
	five, fifty := hybridlimit.PerMinute(5), hybridlimit.PerMinute(50)
	for name, build := range map[string]func(t *testing.T) (limits [2]hybridlimit.Limiter){
		"local": func(t *testing.T) [2]hybridlimit.Limiter {
			return [2]hybridlimit.Limiter{newLocal(t, "a", five), newLocal(t, "b", fifty)}
		},
		"global": func(t *testing.T) [2]hybridlimit.Limiter {
			rdb := redistest.NewBubble(t).Client(nil)
			return [2]hybridlimit.Limiter{newGlobal(t, rdb, "a", five), newGlobal(t, rdb, "b", fifty)}
		},
		"hybrid":       func(t *testing.T) [2]hybridlimit.Limiter { return ofHub(t, five, fifty, hybrid.ModeAuto) },
		"hybrid exact": func(t *testing.T) [2]hybridlimit.Limiter { return ofHub(t, five, fifty, hybrid.ModeExact) },
	} {
		for _, both := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiters := build(t)
					cost := int64(10)
					of := func(l hybridlimit.Limiter) httplimit.Limit {
						return httplimit.Limit{Limiter: l, Key: fixed("k"), Cost: func(*http.Request) int64 { return cost }}
					}
					limits := []httplimit.Limit{of(limiters[0])}
					if both {
						limits = append(limits, of(limiters[1]))
					}
					h := middleware(t, httplimit.Config{XRateLimit: true}, limits...)(&served{})
					for _, step := range []struct {
						cost   int64
						status int
						left   string
					}{{10, 429, "5"}, {2, 200, "3"}, {10, 429, "3"}} {
						cost = step.cost
						res := get(h)
						_, _ = io.Copy(io.Discard, res.Body)
						told, err := ratelimitheader.ParseRateLimit(res.Header)
						if err != nil || len(told) == 0 {
							t.Fatalf("%+v, %v", res.Header, err)
						}
						left := res.Header.Get("X-RateLimit-Remaining")
						if res.StatusCode != step.status || left != step.left || told[0].Policy != "a" || told[0].Remaining != int64(left[0]-'0') {
							t.Errorf("cost %d: %d, %q of %q: want %d and %q left", step.cost, res.StatusCode, left, res.Header.Get("RateLimit"), step.status, step.left)
						}
					}
				})
			})
		}
	}
}

// ofHub returns two limiters of one hub.
func ofHub(t *testing.T, a, b hybridlimit.Limit, mode hybrid.Mode) (limiters [2]hybridlimit.Limiter) {
	t.Helper()
	hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	for i, limit := range []hybridlimit.Limit{a, b} {
		if limiters[i], err = hub.Limiter(limit, hybrid.Config{Name: string(rune('a' + i)), Mode: mode, MaxWait: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	return limiters
}
