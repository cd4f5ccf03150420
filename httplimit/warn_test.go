package httplimit_test

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

const warning = "X-Ratelimit-Warning"

// Every kind of limit warns below the part, and not at it. A denial has no warning.
func TestWarnsBelow(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, time.Hour, 10), hybridlimit.LeakyBucket(1, time.Hour, 10), hybridlimit.FixedWindow(10, time.Hour),
		hybridlimit.SlidingWindow(10, time.Hour), hybridlimit.SlidingLog(10, time.Hour),
	} {
		synctest.Test(t, func(t *testing.T) {
			h := middleware(t, httplimit.Config{WarnBelow: 0.2}, httplimit.Limit{Limiter: newLocal(t, "api", limit), Key: fixed("k")})(&served{})
			for left := 9; left >= -1; left-- {
				var want []string
				if left == 0 || left == 1 {
					want = []string{"api"}
				}
				if got := get(h).Header[warning]; !slices.Equal(got, want) {
					t.Errorf("%v, %d left: %q, want %q", limit, left, got, want)
				}
			}
		})
	}
}

// A limit warns if it has an item in RateLimit: not in shadow, and not if another policy decides.
func TestWarnsOfPublishedLimits(t *testing.T) {
	few := hybridlimit.Result{Allowed: true, Limit: 100, Remaining: 7, Source: hybridlimit.SourceRedis}
	from := func(s hybridlimit.Source) hybridlimit.Limiter {
		res := few
		res.Source = s
		return limittest.Play(res)
	}
	for name, tc := range map[string]struct {
		of           hybridlimit.Limiter
		below        float64
		warns, shown bool
	}{
		"decided by Redis":     {from(hybridlimit.SourceRedis), 0.071, true, true},
		"not below":            {from(hybridlimit.SourceRedis), 0.07, false, true}, // 0.07·100 is above 7 in a float64
		"decided by fallback":  {from(hybridlimit.SourceFallback), 0.9, false, false},
		"decided by a switch":  {from(hybridlimit.SourceSwitch), 0.9, false, false},
		"decided without word": {from(hybridlimit.SourceUnknown), 0.9, false, false},
		"unlimited":            {newLocal(t, "free", hybridlimit.Unlimited()), 0.9, false, false},
	} {
		r := get(middleware(t, httplimit.Config{WarnBelow: tc.below}, httplimit.Limit{Limiter: tc.of, Key: fixed("k"), Name: "api"})(&served{}))
		if r.StatusCode != 200 || (r.Header[warning] != nil) != tc.warns || (r.Header["Ratelimit"] != nil) != tc.shown {
			t.Errorf("%s: %d %v", name, r.StatusCode, r.Header)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := hubOf(t, map[string]hybrid.Config{"dark": {Shadow: true}}, map[string]hybridlimit.Limit{"dark": hybridlimit.PerHour(1)})
		if r := get(middleware(t, httplimit.Config{WarnBelow: 0.9}, httplimit.Limit{Limiter: l["dark"], Key: fixed("k")})(&served{})); r.Header[warning] != nil {
			t.Errorf("in shadow: %v", r.Header)
		}
	})
}

func TestWarnBelowIsChecked(t *testing.T) {
	limit := httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("k")}
	for below, want := range map[float64]string{
		-0.1: "Config.WarnBelow (-0.1) must be at least 0 and below 1", 1: "Config.WarnBelow (1) must be at least 0", math.Inf(1): "(+Inf)", math.NaN(): "(NaN)",
	} {
		if _, err := httplimit.New(httplimit.Config{WarnBelow: below}, limit); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", below, err)
		}
	}
	if _, err := httplimit.New(httplimit.Config{WarnBelow: 0.5, Hide: true}, limit); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "must be 0 with Config.Hide") {
		t.Errorf("hidden: %v", err)
	}
	if _, err := httplimit.New(httplimit.Config{WarnBelow: 0.999}, limit); err != nil {
		t.Error(err)
	}
}

// A watched limit stands beside one without a window, in both orders. They are asked together, with classes, and the
// fields are those without a watch.
func TestWatchedLimits(t *testing.T) {
	for _, first := range []string{"day", "rate"} {
		synctest.Test(t, func(t *testing.T) {
			var got []notice.Crossing
			day, err := local.New(hybridlimit.FixedWindow(10, 24*time.Hour), local.Config{Name: "day", Classes: []local.Class{{Name: "batch", Floor: 0.4}}})
			if err != nil {
				t.Fatal(err)
			}
			watched, err := notice.New(day, notice.Config{At: []float64{0.5}, On: func(c notice.Crossing) { got = append(got, c) }})
			if err != nil {
				t.Fatal(err)
			}
			defer watched.Close()
			rate := newLocal(t, "rate", hybridlimit.TokenBucket(1, time.Hour, 7))
			limits := []httplimit.Limit{{Limiter: watched, Key: fixed("k")}, {Limiter: rate, Key: fixed("k")}}
			if first == "rate" {
				slices.Reverse(limits)
			}
			class := "batch"
			h := middleware(t, httplimit.Config{WarnBelow: 0.2, Class: func(*http.Request) string { return class }}, limits...)(&served{})
			for range 7 { // the last one is denied by the floor
				get(h)
			}
			if res, err := rate.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
				t.Errorf("a denial of the watched limit cost units of the other: %+v, %v", res, err)
			}
			class = hybridlimit.ClassCritical
			r := get(h)
			if r.StatusCode != 200 || !slices.Equal(r.Header[warning], []string{"rate"}) {
				t.Errorf("%d %v", r.StatusCode, r.Header)
			}
			if all := strings.Join(r.Header["Ratelimit"], ", "); !strings.Contains(all, `"day";r=3`) || !strings.Contains(all, `"rate";r=0`) {
				t.Errorf("%v", r.Header)
			}
			synctest.Wait()
			if len(got) != 1 || got[0].Used != 5 || got[0].Limit != 10 {
				t.Errorf("%+v", got)
			}
		})
	}
}
