package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// The error lists everything that is wrong.
func TestNewChecksItsArguments(t *testing.T) {
	key := fixed("k")
	var none *local.Limiter
	unnamed, named := newLocal(t, "", hybridlimit.PerSecond(1)), newLocal(t, "named", hybridlimit.PerSecond(1))
	_, err := httplimit.New(httplimit.Config{Failure: 7, NoKey: 302, Jitter: math.NaN(), WarnBelow: 1},
		httplimit.Limit{Name: "a b", Bucket: "{}"},
		httplimit.Limit{Name: "same", Limiter: limittest.AllowAll(), Key: key},
		httplimit.Limit{Name: "same", Limiter: limittest.AllowAll(), Key: key},
		httplimit.Limit{Limiter: none, Key: key},
		httplimit.Limit{Limiter: limittest.AllowAll(), Key: key},
		httplimit.Limit{Limiter: unnamed, Key: key},
		httplimit.Limit{Limiter: newLocal(t, "", hybridlimit.PerSecond(2)), Key: key},
		httplimit.Limit{Limiter: named, Key: key},
		httplimit.Limit{Limiter: named, Key: key},
		httplimit.Limit{Limiter: unnamed, Key: key, Name: "default"})
	if !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Fatalf("%v", err)
	}
	for _, field := range []string{
		"Config.Failure (7)", "Config.NoKey (302)", "Config.Jitter (NaN)", "Config.WarnBelow (1)", "limits[0].Limiter", "limits[0].Key", `limits[0].Name ("a b")`, `limits[0].Bucket ("{}")`, `limits[2].Name ("same")`,
		"limits[3].Limiter", `limits[4].Name ("") must be set because there are several limits`, `limits[6].Name ("")`, `limits[5] has the name "default" too`,
		`limits[8].Name ("")`, `limits[7] has the name "named" too`, `limits[9].Name ("default")`,
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
	if _, err := httplimit.New(httplimit.Config{}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("no limits: %v", err)
	}
	if _, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: unnamed, Key: key}, httplimit.Limit{Limiter: named, Key: key}, httplimit.Limit{Limiter: named, Key: key, Name: "again"}); err != nil {
		t.Errorf("names that differ: %v", err)
	}
}

func TestSkipAndCost(t *testing.T) {
	recorder := limittest.Record(nil)
	mw := middleware(t, httplimit.Config{Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" }},
		httplimit.Limit{Limiter: recorder, Key: fixed("k"), Cost: func(r *http.Request) int64 {
			n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
			return n
		}})
	h := &served{}
	for path, cost := range map[string]string{"/healthz": "5", "/five": "5", "/free": "0"} {
		res := get(mw(h), func(r *http.Request) { r.URL.Path = path }, header("Cost", cost))
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if calls := recorder.Calls(); len(calls) != 1 || calls[0].N != 5 || h.requests() != 3 {
		t.Errorf("%+v, %d served", calls, h.requests())
	}
}

// A request without a decision is rejected or admitted according to Config.Failure.
// It is logged, with at most one line per second.
func TestFailures(t *testing.T) {
	failure := errors.New("failure")
	for name, tc := range map[string]struct {
		limit  httplimit.Limit
		closed int // the status with FailClosed
		open   int // with FailOpen; the same where the limiter is not unavailable
		level  string
	}{
		"the limiter fails": {httplimit.Limit{Limiter: failing(hybridlimit.ErrUnavailable), Key: fixed("secret key")}, 503, 200, "ERROR"},
		"it is closed":      {httplimit.Limit{Limiter: closed(t), Key: fixed("secret key")}, 503, 200, "ERROR"},
		"no limit applies":  {httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("")}, 429, 429, "WARN"},
		"no required key":   {httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed(""), Required: true}, 429, 429, "WARN"},
		"the cost is bad":   {httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("secret key"), Cost: func(*http.Request) int64 { return -1 }}, 400, 400, "WARN"},
		"the key is bad":    {httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed(strings.Repeat("secret key", 100))}, 400, 400, "WARN"},
		"another error":     {httplimit.Limit{Limiter: failing(failure), Key: fixed("secret key")}, 503, 503, "ERROR"},
	} {
		for failure, status := range map[httplimit.Failure]int{httplimit.FailClosed: tc.closed, httplimit.FailOpen: tc.open} {
			t.Run(name+"/"+failure.String(), func(t *testing.T) {
				var log lines
				h := &served{}
				mw := middleware(t, httplimit.Config{Failure: failure, Logger: log.logger()}, tc.limit)
				for range 3 {
					res := get(mw(h))
					if res.StatusCode != status || (h.requests() > 0) != (status == 200) {
						t.Errorf("%d, %d served", res.StatusCode, h.requests())
					}
					if status != 200 && res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("RateLimit") != "" || res.Header.Get("Retry-After") != "" {
						t.Errorf("%v", res.Header)
					}
				}
				if log.count() != 1 || !strings.Contains(log.String(), tc.level) || strings.Contains(log.String(), "secret key") {
					t.Errorf("three failures are one line without the key, not:\n%s", log.String())
				}
			})
		}
	}
}

func closed(t *testing.T) hybridlimit.Limiter {
	l := newLocal(t, "api", hybridlimit.PerSecond(1))
	l.Close()
	return l
}

// The line after a second has the number of failures without a line.
func TestFailuresAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		mw := middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: limittest.Play(), Key: fixed("k")})
		for range 5 {
			get(mw(&served{}))
		}
		time.Sleep(time.Second)
		get(mw(&served{}))
		if log.count() != 2 || !strings.Contains(log.String(), "more=4") {
			t.Errorf("%s", log.String())
		}
	})
}

// While Redis is down, FailOpen of package global decides, not the middleware's
// Failure, and the fields are left out.
func TestLimiterWithoutRedis(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint(open), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				l, err := global.New(b.Client(nil), hybridlimit.PerSecond(10), global.Config{Name: "api", FailOpen: open})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				b.Kill()
				var log lines
				res := get(middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: l, Key: fixed("k")})(&served{}))
				want := http.StatusServiceUnavailable
				if open {
					want = http.StatusOK
				}
				if res.StatusCode != want || res.Header.Get("RateLimit") != "" || res.Header.Get("RateLimit-Policy") != "" {
					t.Errorf("%d, %v", res.StatusCode, res.Header)
				}
				if log.count() != 1 || !strings.Contains(log.String(), "WARN") {
					t.Errorf("%s", log.String())
				}
			})
		})
	}
}

// A hub's limits are asked together: a request that one denies costs no units in the
// others.
func TestLimitsOfAHubAreAskedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		all, err := hub.Limiter(hybridlimit.PerHour(10), hybrid.Config{Name: "all", MaxWait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		user, err := hub.Limiter(hybridlimit.PerHour(3), hybrid.Config{Name: "user", MaxWait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		h := &served{}
		handler := middleware(t, httplimit.Config{},
			httplimit.Limit{Limiter: all, Key: httplimit.Everyone()},
			httplimit.Limit{Limiter: user, Key: func(r *http.Request) string { return r.Header.Get("User") }})(h)
		for i := range 20 {
			res := get(handler, header("User", "ann"))
			if i >= 3 && (res.StatusCode != 429 || !strings.HasPrefix(res.Header.Get("RateLimit"), `"user";r=0;t=`)) {
				t.Errorf("request %d of ann: %d, %v", i, res.StatusCode, res.Header)
			}
			if i < 3 && res.StatusCode != 200 {
				t.Errorf("request %d of ann: %d, %v", i, res.StatusCode, res.Header)
			}
		}
		for _, user := range []string{"bob", "cid", "bob", "cid", "bob", "cid", "dan", "eve"} {
			get(handler, header("User", user))
		}
		if h.requests() != 10 {
			t.Errorf("%d requests were served, want 10: denials took units", h.requests())
		}
	})
}

// Limiters that cannot be asked together are asked in turn. If a later one denies,
// the earlier ones get their units back.
func TestLimitsInTurnGetBackWhatTheyGave(t *testing.T) {
	all := newLocal(t, "all", hybridlimit.PerHour(10))
	h := &served{}
	mw := middleware(t, httplimit.Config{},
		httplimit.Limit{Limiter: all, Key: httplimit.Everyone()},
		httplimit.Limit{Limiter: limittest.DenyAll(time.Minute), Key: fixed("ann"), Name: "user"})
	for range 20 {
		if res := get(mw(h)); res.StatusCode != 429 {
			t.Fatalf("%d", res.StatusCode)
		}
	}
	if res, err := all.Peek(t.Context(), "*"); err != nil || res.Remaining != 10 || h.requests() != 0 {
		t.Errorf("%+v, %v, %d served", res, err, h.requests())
	}
}

// With FailOpen, a limiter that fails does not stop a request; the others still apply.
func TestFailOpenPassesOneLimiterOver(t *testing.T) {
	var log lines
	h := &served{}
	mw := middleware(t, httplimit.Config{Failure: httplimit.FailOpen, Logger: log.logger()},
		httplimit.Limit{Limiter: failing(hybridlimit.ErrUnavailable), Key: fixed("k"), Name: "broken"},
		httplimit.Limit{Limiter: newLocal(t, "sound", hybridlimit.PerHour(1)), Key: fixed("k")})
	for i, want := range []int{200, 429} {
		if res := get(mw(h)); res.StatusCode != want {
			t.Errorf("request %d: %d", i, res.StatusCode)
		}
	}
}

// A shadow limit denies no request, and has a field only with ShadowHeader.
func TestShadowLimits(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, err := hybrid.New(redistest.NewBubble(t).Client(nil), hybridlimit.PerHour(1), hybrid.Config{
				Name: "dark", Shadow: true, MaxWait: time.Second, Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			h := middleware(t, httplimit.Config{ShadowHeader: asked, XRateLimit: true}, httplimit.Limit{Limiter: l, Key: fixed("k")})(&served{})
			for i := range 3 {
				res := get(h)
				want := ""
				if asked && i > 0 {
					want = "dark"
				}
				if res.StatusCode != 200 || res.Header.Get("X-RateLimit-Shadow") != want {
					t.Errorf("asked %t, request %d: %d, %v", asked, i, res.StatusCode, res.Header)
				}
				for _, field := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit"} {
					if got := res.Header.Get(field); got != "" {
						t.Errorf("a limit that is not in force is published: %s: %s", field, got)
					}
				}
			}
		})
	}
}

// RateLimit-Policy follows LimitFor and SetLimit.
func TestPolicyOfTiers(t *testing.T) {
	l, err := local.New(hybridlimit.PerMinute(10), local.Config{Name: "api", LimitFor: func(key string) hybridlimit.Limit {
		if key == "pro" {
			return hybridlimit.PerMinute(1000)
		}
		return hybridlimit.PerMinute(10)
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: func(r *http.Request) string { return r.Header.Get("Tier") }})(&served{})
	expect := func(tier, want string) {
		t.Helper()
		if got := get(h, header("Tier", tier)).Header.Get("RateLimit-Policy"); got != want {
			t.Errorf("%s: %q, want %q", tier, got, want)
		}
	}
	for range 2 {
		expect("free", `"api";q=10;w=60`)
		expect("pro", `"api";q=1000;w=60`)
	}
	if err := l.SetLimit(hybridlimit.PerMinute(20)); err != nil {
		t.Fatal(err)
	}
	expect("pro", `"api";q=1000;w=60`)
}

func TestDeniedHandler(t *testing.T) {
	var got httplimit.Denial
	h := middleware(t, httplimit.Config{Denied: func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
		got = d
		w.WriteHeader(d.Status)
	}}, httplimit.Limit{Limiter: limittest.DenyAll(1100 * time.Millisecond), Key: fixed("k"), Name: "mine"})(&served{})
	res := get(h)
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "2" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d, %v", res.StatusCode, res.Header)
	}
	if got.Status != 429 || got.RetryAfter != 2*time.Second || len(got.Policies) != 1 || got.Policies[0] != "mine" || got.Err != nil || got.Result.RetryAfter != 1100*time.Millisecond {
		t.Errorf("%+v", got)
	}
}

// Jitter lengthens Retry-After by a varying amount, at most by its fraction.
func TestJitter(t *testing.T) {
	h := middleware(t, httplimit.Config{Jitter: 0.5}, httplimit.Limit{Limiter: limittest.DenyAll(1000 * time.Second), Key: fixed("k")})(&served{})
	seen := map[string]bool{}
	for range 50 {
		field := get(h).Header.Get("Retry-After")
		s, err := strconv.Atoi(field)
		if err != nil || s < 1000 || s > 1500 {
			t.Errorf("Retry-After: %q, %v", field, err)
		}
		seen[field] = true
	}
	if len(seen) < 10 {
		t.Errorf("50 denials, %d different", len(seen))
	}
}

// A request whose client has gone is not served, even with FailOpen. It is not
// logged as a failure of the limiter.
func TestClientThatIsGone(t *testing.T) {
	for _, failure := range []httplimit.Failure{httplimit.FailClosed, httplimit.FailOpen} {
		var log lines
		h := &served{}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		limiter := limittest.PlaySteps(limittest.Step{Err: context.Canceled})
		mw := middleware(t, httplimit.Config{Failure: failure, Logger: log.logger()}, httplimit.Limit{Limiter: limiter, Key: fixed("k")})
		res := get(mw(h), func(r *http.Request) { *r = *r.WithContext(ctx) })
		if res.StatusCode != 503 || h.requests() != 0 || log.count() != 0 {
			t.Errorf("%v: %d, %d served, log: %s", failure, res.StatusCode, h.requests(), log.String())
		}
	}
}

// If a request's own deadline ends while a limiter is asked, the log has a line, but
// not an error of the limiter.
func TestDeadlineOfTheRequest(t *testing.T) {
	for _, failure := range []httplimit.Failure{httplimit.FailClosed, httplimit.FailOpen} {
		var log lines
		h := &served{}
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		limiter := limittest.PlaySteps(limittest.Step{Err: fmt.Errorf("hybrid: %w", context.DeadlineExceeded)})
		mw := middleware(t, httplimit.Config{Failure: failure, Logger: log.logger()}, httplimit.Limit{Limiter: limiter, Key: fixed("k")})
		res := get(mw(h), func(r *http.Request) { *r = *r.WithContext(ctx) })
		if res.StatusCode != 503 || h.requests() != 0 || log.count() != 1 || !strings.Contains(log.String(), "WARN") {
			t.Errorf("%v: %d, %d served, log: %s", failure, res.StatusCode, h.requests(), log.String())
		}
	}
}

// An error beside a decision is logged, without the key in its text, and the
// decision counts.
func TestErrorBesideADecision(t *testing.T) {
	other, err := global.New(redis.NewClient(&redis.Options{Addr: redistest.Mini(t).Addr()}), hybridlimit.PerSecond(1), global.Config{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for want, res := range map[int]hybridlimit.Result{
		429: {RetryAfter: time.Second, Source: hybridlimit.SourceRedis},
		200: {Allowed: true, Granted: 1, Source: hybridlimit.SourceRedis},
	} {
		var log lines
		asks := []hybridlimit.Ask{{Limiter: other, Key: "192.0.2.1", N: 1}}
		limiter := limittest.PlaySteps(limittest.Step{Result: res, Err: &global.NotReturnedError{Asks: asks, Err: hybridlimit.ErrUnavailable}})
		mw := middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: limiter, Key: fixed("192.0.2.1")})
		if res := get(mw(&served{})); res.StatusCode != want || log.count() != 1 || strings.Contains(log.String(), "192.0.2.1") || !strings.Contains(log.String(), "[key]") {
			t.Errorf("%d, want %d, log: %s", res.StatusCode, want, log.String())
		}
	}
}
