package httplimit_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limittest"
)

var update = flag.Bool("update", false, "write the responses into testdata")

// dump returns a response as text, with its fields in order.
func dump(r *http.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", r.StatusCode, http.StatusText(r.StatusCode))
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range r.Header {
			if !yield(name) {
				return
			}
		}
	}) {
		for _, v := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(&b, "\n%s\n", strings.TrimSuffix(string(body), "\n"))
	return b.String()
}

// chain is a case: requests to a handler, one after the other, in a bubble that
// starts on 1 January 2000.
type chain struct {
	name string
	play func(t *testing.T, show func(h http.Handler))
}

var chains = []chain{
	{"one limit", func(t *testing.T, show func(http.Handler)) {
		mw := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerMinute(2)), Key: fixed("k")})
		for range 3 {
			show(mw(&served{}))
		}
		time.Sleep(29 * time.Second)
		show(mw(&served{})) // one second before the end of Retry-After
		time.Sleep(time.Second)
		show(mw(&served{}))
	}},
	{"windows shorter than a second", func(t *testing.T, show func(http.Handler)) {
		mw := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "fast", hybridlimit.TokenBucket(100, time.Second, 2)), Key: fixed("k")})
		for range 3 {
			show(mw(&served{}))
		}
	}},
	{"a fixed window, near its end", func(t *testing.T, show func(http.Handler)) {
		mw := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "daily", hybridlimit.FixedWindow(100, 24*time.Hour)), Key: fixed("k")})
		time.Sleep(24*time.Hour - 10*time.Second)
		show(mw(&served{}))
	}},
	{"several limits together", func(t *testing.T, show func(http.Handler)) {
		mw := middleware(t, httplimit.Config{XRateLimit: true},
			httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.PerSecond(100)), Key: httplimit.Everyone()},
			httplimit.Limit{Limiter: newLocal(t, "user", hybridlimit.PerHour(1)), Key: fixed("ann"), Bucket: "b1"})
		for range 2 {
			show(mw(&served{}))
		}
	}},
	{"several limits in turn", func(t *testing.T, show func(http.Handler)) {
		mw := middleware(t, httplimit.Config{},
			httplimit.Limit{Limiter: limittest.Record(newLocal(t, "all", hybridlimit.PerSecond(100))), Key: httplimit.Everyone(), Name: "all"},
			httplimit.Limit{Limiter: newLocal(t, "user", hybridlimit.PerHour(1)), Key: fixed("ann")})
		for range 2 {
			show(mw(&served{}))
		}
	}},
	{"a limit that comes with the request", func(t *testing.T, show func(http.Handler)) {
		plan := hybridlimit.PerMinute(50)
		mw := middleware(t, httplimit.Config{XRateLimit: true},
			httplimit.Limit{Limiter: newLocal(t, "plan", hybridlimit.PerHour(1)), Key: fixed("ann"), Of: func(*http.Request) (hybridlimit.Limit, bool) {
				return plan, plan.Rate > 0
			}},
			httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.PerSecond(100)), Key: httplimit.Everyone()})
		for _, plan = range []hybridlimit.Limit{plan, hybridlimit.PerHour(2), {}} {
			for range 2 {
				show(mw(&served{}))
			}
		}
	}},
	{"one middleware in another", func(t *testing.T, show func(http.Handler)) {
		outer := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.PerMinute(100)), Key: httplimit.Everyone()})
		inner := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "route", hybridlimit.PerMinute(1)), Key: fixed("k")})
		for range 2 {
			show(outer(inner(&served{})))
		}
	}},
	{"a middleware that hides in another", func(t *testing.T, show func(http.Handler)) {
		outer := middleware(t, httplimit.Config{XRateLimit: true}, httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.PerMinute(100)), Key: httplimit.Everyone(), Bucket: "outer"})
		inner := middleware(t, httplimit.Config{Hide: true}, httplimit.Limit{Limiter: newLocal(t, "route", hybridlimit.PerMinute(1)), Key: fixed("k")})
		for range 2 {
			show(outer(inner(&served{})))
		}
	}},
	{"the narrower of two middlewares", func(t *testing.T, show func(http.Handler)) {
		x := httplimit.Config{XRateLimit: true}
		wide := middleware(t, x, httplimit.Limit{Limiter: newLocal(t, "wide", hybridlimit.PerMinute(100)), Key: httplimit.Everyone(), Bucket: "w"})
		narrow := middleware(t, x, httplimit.Limit{Limiter: newLocal(t, "narrow", hybridlimit.PerMinute(5)), Key: fixed("k"), Bucket: "n"})
		show(wide(narrow(&served{})))
		show(narrow(wide(&served{})))
	}},
	{"a failure in another middleware", func(t *testing.T, show func(http.Handler)) {
		var log lines
		outer := middleware(t, httplimit.Config{XRateLimit: true}, httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.PerMinute(100)), Key: httplimit.Everyone(), Bucket: "outer"})
		show(outer(middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: limittest.Play(), Key: fixed("k")})(&served{})))
	}},
	{"no time for the queue", func(t *testing.T, show func(http.Handler)) {
		var log lines
		mw := middleware(t, httplimit.Config{XRateLimit: true, Logger: log.logger()},
			httplimit.Limit{Limiter: newLocal(t, "shape", hybridlimit.LeakyQueue(1, time.Minute, 2)), Key: fixed("k"), Bucket: "b"},
			httplimit.Limit{Limiter: newLocal(t, "user", hybridlimit.PerMinute(10)), Key: fixed("k")})
		hurried := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			mw(&served{}).ServeHTTP(w, r.WithContext(ctx))
		})
		show(hurried)
		show(hurried)
		time.Sleep(time.Minute)
		show(hurried)
	}},
	{"shadow and switches", func(t *testing.T, show func(http.Handler)) {
		l := hubOf(t, map[string]hybrid.Config{"dark": {Shadow: true}}, map[string]hybridlimit.Limit{
			"real": hybridlimit.PerHour(10), "dark": hybridlimit.PerHour(1),
		})
		mw := middleware(t, httplimit.Config{ShadowHeader: true, XRateLimit: true},
			httplimit.Limit{Limiter: l["real"], Key: fixed("k")}, httplimit.Limit{Limiter: l["dark"], Key: fixed("k")})
		show(mw(&served{}))
		show(mw(&served{}))
		for _, to := range []hybrid.Switch{hybrid.SwitchShadow, hybrid.SwitchAllowAll, hybrid.SwitchDenyAll, hybrid.SwitchLocalOnly} {
			if err := l["real"].SetSwitch(to); err != nil {
				t.Fatal(err)
			}
			show(mw(&served{}))
		}
	}},
	{"it costs more than there can be", func(t *testing.T, show func(http.Handler)) {
		show(middleware(t, httplimit.Config{}, httplimit.Limit{
			Limiter: newLocal(t, "api", hybridlimit.PerMinute(2)), Key: fixed("k"), Cost: func(*http.Request) int64 { return 3 },
		})(&served{}))
	}},
	{"the fallback decides", func(t *testing.T, show func(http.Handler)) {
		script := limittest.Play(
			hybridlimit.Result{Allowed: true, Granted: 1, Limit: 10, Remaining: 9, Source: hybridlimit.SourceFallback, Policy: "api"},
			hybridlimit.Result{Limit: 10, RetryAfter: 1500 * time.Millisecond, Source: hybridlimit.SourceFallback, Policy: "api"},
			hybridlimit.Result{Limit: 10, RetryAfter: time.Millisecond, Source: hybridlimit.SourceTimeout, Policy: "api"},
		)
		mw := middleware(t, httplimit.Config{XRateLimit: true}, httplimit.Limit{Limiter: script, Key: fixed("k"), Bucket: "b"})
		for range 3 {
			show(mw(&served{}))
		}
	}},
	{"a limiter that does not describe itself", func(t *testing.T, show func(http.Handler)) {
		script := limittest.Play(hybridlimit.Result{Allowed: true, Granted: 1, Limit: 10, Remaining: 9, ResetAfter: time.Second, Source: hybridlimit.SourceRedis})
		show(middleware(t, httplimit.Config{XRateLimit: true}, httplimit.Limit{Limiter: script, Key: fixed("k")})(&served{}))
	}},
	{"nothing counts", func(t *testing.T, show func(http.Handler)) {
		show(middleware(t, httplimit.Config{XRateLimit: true}, httplimit.Limit{Limiter: newLocal(t, "staff", hybridlimit.Unlimited()), Key: fixed("k")})(&served{}))
	}},
	{"blocked", func(t *testing.T, show func(http.Handler)) {
		show(middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "banned", hybridlimit.Blocked()), Key: fixed("k")})(&served{}))
	}},
	{"hidden", func(t *testing.T, show func(http.Handler)) {
		mw := middleware(t, httplimit.Config{Hide: true}, httplimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerMinute(1)), Key: fixed("k")})
		for range 2 {
			show(mw(&served{}))
		}
	}},
	{"few units are left", func(t *testing.T, show func(http.Handler)) {
		mw := middleware(t, httplimit.Config{WarnBelow: 0.5},
			httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.FixedWindow(5, time.Minute)), Key: httplimit.Everyone()},
			httplimit.Limit{Limiter: newLocal(t, "user", hybridlimit.PerHour(4)), Key: fixed("ann")})
		for range 5 { // two left of four are not below a half
			show(mw(&served{}))
		}
	}},
	{"few units are left in one of two middlewares", func(t *testing.T, show func(http.Handler)) {
		outer := middleware(t, httplimit.Config{WarnBelow: 0.9}, httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.PerMinute(3)), Key: httplimit.Everyone()})
		inner := middleware(t, httplimit.Config{WarnBelow: 0.9}, httplimit.Limit{Limiter: newLocal(t, "route", hybridlimit.PerMinute(1)), Key: fixed("k")})
		for range 2 {
			show(outer(inner(&served{})))
		}
	}},
	{"a bad key and a bad cost", func(t *testing.T, show func(http.Handler)) {
		for _, limit := range []httplimit.Limit{
			{Limiter: limittest.AllowAll(), Key: fixed(strings.Repeat("k", adapter.DefaultMaxKeyBytes+1))},
			{Limiter: limittest.AllowAll(), Key: fixed("k"), Cost: func(*http.Request) int64 { return -1 }},
		} {
			show(middleware(t, httplimit.Config{Logger: slog.New(slog.DiscardHandler)}, limit)(&served{}))
		}
	}},
	{"no key", func(t *testing.T, show func(http.Handler)) {
		for _, answer := range []httplimit.NoKey{httplimit.NoKeyDeny, httplimit.NoKeyPass, http.StatusUnauthorized, http.StatusServiceUnavailable} {
			show(middleware(t, httplimit.Config{NoKey: answer, Logger: slog.New(slog.DiscardHandler)}, httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("")})(&served{}))
		}
	}},
	{"a failure", func(t *testing.T, show func(http.Handler)) {
		var log lines
		show(middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: limittest.Play(), Key: fixed("k")})(&served{}))
	}},
}

// TestGoldenResponses compares the full responses with testdata. -update writes them
// there: review the difference.
func TestGoldenResponses(t *testing.T) {
	for _, c := range chains {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			synctest.Test(t, func(t *testing.T) {
				c.play(t, func(h http.Handler) {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					fmt.Fprintf(&b, "--- %v\n%s", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), dump(w.Result()))
				})
			})
			file := filepath.Join("testdata", strings.ReplaceAll(c.name, " ", "-")+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("%s differs from the responses, which are now:\n%s", file, b.String())
			}
		})
	}
}
