package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// planOf reads a plan from a field, as a program would from a checked token.
func planOf(r *http.Request) (hybridlimit.Limit, bool) {
	switch r.Header.Get("Plan") {
	case "gold":
		return hybridlimit.PerHour(50), true
	case "trial":
		return hybridlimit.PerHour(2), true
	case "banned":
		return hybridlimit.Blocked(), true
	case "staff":
		return hybridlimit.Unlimited(), true
	case "broken":
		return hybridlimit.Limit{}, true
	case "window":
		return hybridlimit.FixedWindow(1, time.Hour), true
	}
	return hybridlimit.Limit{}, false
}

func user(r *http.Request) string { return r.Header.Get("User") }

// TestLimitOfTheRequest checks with each package that the limit of the request decides and is published, that the key's own limit
// applies otherwise, and that used units stay used between them.
func TestLimitOfTheRequest(t *testing.T) {
	for _, name := range []string{"local", "global", "hybrid"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				own := hybridlimit.PerHour(10)
				var l hybridlimit.Limiter = newLocal(t, "api", own)
				rdb := redistest.NewBubble(t).Client(nil)
				switch name {
				case "global":
					g, err := global.New(rdb, own, global.Config{Name: "api"})
					if err != nil {
						t.Fatal(err)
					}
					l = g
				case "hybrid":
					h, err := hybrid.New(rdb, own, hybrid.Config{Name: "api", MaxWait: time.Second, Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)}})
					if err != nil {
						t.Fatal(err)
					}
					defer h.Close()
					l = h
				}
				handler := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: user, Of: planOf})(&served{})
				for i, c := range []struct {
					user, plan, policy string
					left, status       int
				}{
					{"ann", "gold", `"api";q=50;w=3600`, 49, 200},
					{"ann", "gold", `"api";q=50;w=3600`, 48, 200},
					{"bob", "trial", `"api";q=2;w=3600`, 1, 200},
					{"bob", "trial", `"api";q=2;w=3600`, 0, 200},
					{"bob", "trial", `"api";q=2;w=3600`, 0, 429},
					{"cid", "", `"api";q=10;w=3600`, 9, 200},
					{"dan", "banned", `"api";q=0`, 0, 429},
					{"eve", "staff", "", -1, 200},
					{"bob", "gold", `"api";q=50;w=3600`, 0, 429}, // an upgrade refills nothing
					{"ann", "", `"api";q=10;w=3600`, 9, 200},
				} {
					res := get(handler, func(r *http.Request) { r.Header.Set("User", c.user); r.Header.Set("Plan", c.plan) })
					left := fmt.Sprintf(`"api";r=%d`, c.left)
					if c.left < 0 {
						left = ""
					}
					if got := res.Header.Get("RateLimit-Policy"); got != c.policy || res.StatusCode != c.status || !strings.HasPrefix(res.Header.Get("RateLimit"), left) || c.left < 0 && res.Header.Get("RateLimit") != "" {
						t.Errorf("request %d: %d, %s, %s; want %d, %s, %s", i, res.StatusCode, got, res.Header.Get("RateLimit"), c.status, c.policy, left)
					}
				}
			})
		})
	}
}

// TestOfNeedsAllowLimit checks the errors of New, which name the field.
func TestOfNeedsAllowLimit(t *testing.T) {
	l := newLocal(t, "api", hybridlimit.PerHour(10))
	for _, c := range []struct {
		limits []httplimit.Limit
		want   string
	}{
		{[]httplimit.Limit{{Limiter: limittest.AllowAll(), Key: user, Of: planOf}}, "limits[0].Of (\"set\") needs a Limiter with the method AllowLimit"},
		{[]httplimit.Limit{{Limiter: l, Key: user, Of: planOf}, {Limiter: l, Key: user, Name: "b", Of: planOf}}, "limits[1].Of (\"set\") must be nil, because limits[0] has Of too"},
		{[]httplimit.Limit{{Key: user, Of: planOf}}, "limits[0].Limiter"},
	} {
		_, err := httplimit.New(httplimit.Config{}, c.limits...)
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), ".Of") > 1 {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestOfAmongOtherLimits checks that the limit of the request is asked last, wherever it stands in the list. After its denial the
// other limits have their units back, and after another's denial it has lost none. So it is with limiters that are asked together
// and with others.
func TestOfAmongOtherLimits(t *testing.T) {
	for _, joined := range []bool{false, true} {
		all, route := newLocal(t, "all", hybridlimit.PerHour(6)), newLocal(t, "route", hybridlimit.PerHour(100))
		plans := newLocal(t, "plan", hybridlimit.PerHour(1))
		limits := []httplimit.Limit{{Limiter: plans, Key: user, Of: planOf}, {Limiter: all, Key: fixed("all")}}
		if joined {
			limits = append(limits, httplimit.Limit{Limiter: route, Key: fixed("route")})
		}
		handler := middleware(t, httplimit.Config{}, limits...)(&served{})
		as := func(name, plan string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set("User", name); r.Header.Set("Plan", plan) }
		}
		left := func(l interface {
			Peek(context.Context, string) (hybridlimit.Result, error)
		}, key string,
		) int64 {
			res, err := l.Peek(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			return res.Remaining
		}
		for i, want := range []int{200, 200, 429, 429} {
			res := get(handler, as("bob", "trial"))
			if res.StatusCode != want || want == 429 && violated(t, res)[0] != "plan" {
				t.Errorf("joined %v: request %d of a trial: %d, want %d", joined, i, res.StatusCode, want)
			}
		}
		if n, m := left(all, "all"), left(route, "route"); n != 4 || joined && m != 98 {
			t.Errorf("joined %v: %d and %d units left of the others, want 4 and 98", joined, n, m)
		}
		for range 4 {
			if res := get(handler, as("ann", "gold")); res.StatusCode != 200 || !strings.HasSuffix(strings.Join(res.Header.Values("RateLimit-Policy"), ","), `"plan";q=50;w=3600`) {
				t.Errorf("joined %v: gold: %d, %q", joined, res.StatusCode, res.Header.Values("RateLimit-Policy"))
			}
		}
		if res := get(handler, as("ann", "gold")); res.StatusCode != 429 || violated(t, res)[0] != "all" || left(plans, "ann") != 46 {
			t.Errorf("joined %v: %d, %d units of the plan left, want 46", joined, res.StatusCode, left(plans, "ann"))
		}
	}
}

// TestAnInvalidLimitOfTheRequest checks that an invalid limit stops the request, also with FailOpen, and is logged.
func TestAnInvalidLimitOfTheRequest(t *testing.T) {
	for _, plan := range []string{"broken", "window"} {
		var log lines
		backend := new(served)
		l := newLocal(t, "api", hybridlimit.PerHour(10))
		handler := middleware(t, httplimit.Config{Failure: httplimit.FailOpen, Logger: log.logger()},
			httplimit.Limit{Limiter: l, Key: user, Of: planOf})(backend)
		res := get(handler, func(r *http.Request) { r.Header.Set("User", "ann"); r.Header.Set("Plan", plan) })
		if res.StatusCode != http.StatusServiceUnavailable || backend.requests() != 0 || !strings.Contains(log.String(), "Limit.Of") {
			t.Errorf("%s: %d; logged %s", plan, res.StatusCode, log.String())
		}
		if n, err := l.Peek(t.Context(), "ann"); err != nil || n.Remaining != 10 {
			t.Errorf("%s: %+v, %v", plan, n, err)
		}
	}
}

// TestLeavingKeepsThePlan checks that a client that leaves a queue does not put the key under its own, smaller limit: the units of
// the larger one would be lost.
func TestLeavingKeepsThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocal(t, "api", hybridlimit.LeakyQueue(1, time.Second, 1))
		handler := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: fixed("k"), Of: func(*http.Request) (hybridlimit.Limit, bool) {
			return hybridlimit.LeakyQueue(1, time.Second, 5), true
		}})(&served{})
		get(handler)
		get(handler)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("the client that left: %d", w.Code)
		}
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Limit != 5 {
			t.Errorf("the key has the limit %d, want that of the plan; %v", res.Limit, err)
		}
	})
}
