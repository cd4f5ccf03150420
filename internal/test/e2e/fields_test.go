package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// items reads a field with an independent parser, and checks the grammar of
// draft-ietf-httpapi-ratelimit-headers-11: a List of Strings, whose parameters
// are non-negative Integers with certain names.
func items(t *rapid.T, h http.Header, field string, integers map[string]int64, required string) map[string]map[string]int64 {
	lines := h.Values(field)
	if len(lines) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%s: %q: %v", field, lines, err)
	}
	if len(list) == 0 {
		t.Fatalf("%s: %q is empty", field, lines)
	}
	read := map[string]map[string]int64{}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: %q: %T is not an item", field, lines, member)
		}
		name, ok := item.Value.(string)
		if !ok {
			t.Fatalf("%s: %q: %T is not a String", field, lines, item.Value)
		}
		params := map[string]int64{}
		for _, p := range item.Params.Names() {
			v, _ := item.Params.Get(p)
			n, ok := v.(int64)
			least, known := integers[p]
			if !known || !ok || n < least {
				t.Fatalf("%s: %q: parameter %s is %v", field, lines, p, v)
			}
			params[p] = n
		}
		if _, ok := params[required]; !ok {
			t.Fatalf("%s: %q: parameter %s is missing", field, lines, required)
		}
		if _, twice := read[name]; twice {
			t.Fatalf("%s: %q: %q is there twice", field, lines, name)
		}
		read[name] = params
	}
	return read
}

func drawDuration(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.OneOf(
		rapid.Int64Range(0, int64(10*time.Second)), rapid.Int64Range(0, math.MaxInt64),
		rapid.SampledFrom([]int64{0, 1, int64(time.Second), int64(time.Second) + 1, math.MaxInt64 - 1}),
	).Draw(t, name))
}

// TestFieldsAreOfTheGrammar checks three properties for any answers of limiters:
// the fields follow the grammar, Retry-After is not before the end of t, and a
// client that spreads r over t is not faster than the policy.
func TestFieldsAreOfTheGrammar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.OneOf(rapid.Int64Range(-3, 100), rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, 999_999_999_999_999, 1e15}))
		var limits []httplimit.Limit
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			res := hybridlimit.Result{
				Limit: units.Draw(t, "limit"), Remaining: units.Draw(t, "remaining"), ResetAfter: drawDuration(t, "reset"),
				Source: hybridlimit.Source(rapid.IntRange(0, adapter.NumSources-1).Draw(t, "source")),
				Policy: rapid.OneOf(rapid.SampledFrom([]string{"", "api", `q"\uote`, "naïve", "new\nline"}), rapid.String()).Draw(t, "policy"),
			}
			if res.Allowed = rapid.Bool().Draw(t, "allowed"); !res.Allowed {
				res.RetryAfter = max(1, drawDuration(t, "retry"))
			}
			limit := httplimit.Limit{Limiter: limittest.Play(res), Key: httplimit.Everyone()}
			if rapid.IntRange(0, 3).Draw(t, "named") > 0 {
				limit.Name = "n" + string(rune('0'+(i+rapid.IntRange(0, 1).Draw(t, "by"))%3))
			}
			limits = append(limits, limit)
		}
		if len(limits) > 1 && !differ(limits) {
			if _, err := httplimit.New(httplimit.Config{}, limits...); !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Fatalf("error for missing or equal names: %v, want ErrInvalid", err)
			}
			return
		}
		mw, err := httplimit.New(httplimit.Config{
			XRateLimit: rapid.Bool().Draw(t, "x"), ShadowHeader: true, Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}, limits...)
		if err != nil {
			t.Fatal(err)
		}
		check(t, mw)
	})
}

// differ reports whether all limits have names, and the names differ.
func differ(limits []httplimit.Limit) bool {
	seen := map[string]bool{"": true}
	for _, l := range limits {
		if seen[l.Name] {
			return false
		}
		seen[l.Name] = true
	}
	return true
}

// TestJointLimitsTellOfThemselves checks limits that are asked together. Their
// limiters have no name or one name, and several limits may have the same
// limiter. The fields must have each limit under its own name, with its own
// remaining units. A denial must name the limits that deny.
func TestJointLimitsTellOfThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type known struct {
			limiter *local.Limiter
			key     string
			n       int64
		}
		var made []*local.Limiter
		var limits []httplimit.Limit
		of := map[string]known{}
		for i := range rapid.IntRange(2, 5).Draw(t, "limits") {
			if len(made) == 0 || rapid.Bool().Draw(t, "another") {
				l, err := local.New(hybridlimit.PerHour(rapid.Int64Range(1, 6).Draw(t, "rate")), local.Config{Name: rapid.SampledFrom([]string{"", "same"}).Draw(t, "own name")})
				if err != nil {
					t.Fatal(err)
				}
				made = append(made, l)
			}
			k := known{made[len(made)-1], "k" + string(rune('0'+i)), rapid.Int64Range(1, 3).Draw(t, "n")}
			name := "n" + string(rune('0'+i))
			limits = append(limits, httplimit.Limit{
				Limiter: k.limiter, Name: name, Key: func(*http.Request) string { return k.key }, Cost: func(*http.Request) int64 { return k.n },
			})
			of[name] = k
		}
		mw, err := httplimit.New(httplimit.Config{}, limits...)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			deny := map[string]bool{}
			for name, k := range of {
				res, err := k.limiter.PeekN(context.Background(), k.key, k.n)
				if err != nil {
					t.Fatal(err)
				}
				if !res.Allowed {
					deny[name] = true
				}
			}
			w := httptest.NewRecorder()
			mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if (w.Code == http.StatusTooManyRequests) != (len(deny) > 0) {
				t.Fatalf("status %d, but %v deny", w.Code, deny)
			}
			told := items(t, w.Result().Header, "RateLimit", map[string]int64{"r": 0, "t": 0}, "r")
			policies := items(t, w.Result().Header, "RateLimit-Policy", map[string]int64{"q": 0, "w": 1}, "q")
			if len(policies) != len(of) || len(told) != len(of) && len(deny) == 0 || len(told) != 1 && len(deny) > 0 {
				t.Fatalf("RateLimit %v, RateLimit-Policy %v: for %d limits, of which %v deny", told, policies, len(of), deny)
			}
			for name, l := range told {
				res, err := of[name].limiter.Peek(context.Background(), of[name].key)
				if err != nil || res.Remaining != l["r"] || len(deny) > 0 && !deny[name] {
					t.Fatalf("%s: the field has %v, Peek has %+v, %v; %v deny", name, l, res, err, deny)
				}
			}
			if len(deny) == 0 {
				continue
			}
			var problem struct {
				Policies []string `json:"violated-policies"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || len(problem.Policies) != len(deny) {
				t.Fatalf("violated-policies = %q, %v; %v deny", problem.Policies, err, deny)
			}
			for _, name := range problem.Policies {
				if !deny[name] {
					t.Fatalf("violated-policies = %q; %v deny", problem.Policies, deny)
				}
			}
		}
	})
}

// TestFieldsOfRealLimits checks the same with limiters that really decide, and
// whose fields have the enforced limits.
func TestFieldsOfRealLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := hybridlimit.Limit{
			Algorithm: rapid.SampledFrom([]hybridlimit.Algorithm{
				hybridlimit.AlgTokenBucket, hybridlimit.AlgLeakyBucket, hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow, hybridlimit.AlgSlidingLog,
			}).Draw(t, "algorithm"),
			Rate:   rapid.Int64Range(1, 1000).Draw(t, "rate"),
			Period: time.Duration(rapid.IntRange(1, 100_000).Draw(t, "ms")) * time.Millisecond,
		}
		if limit.Algorithm == hybridlimit.AlgTokenBucket {
			limit.Burst = rapid.Int64Range(1, 1000).Draw(t, "burst")
		}
		l, err := local.New(limit, local.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{
			Limiter: l, Key: httplimit.Everyone(), Cost: func(*http.Request) int64 { return 1 + limit.BurstSize()/3 },
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			check(t, mw)
		}
	})
}

// check sends a request and checks the fields of the response.
func check(t *rapid.T, mw func(http.Handler) http.Handler) {
	w := httptest.NewRecorder()
	mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	h := w.Result().Header
	policies := items(t, h, "RateLimit-Policy", map[string]int64{"q": 0, "w": 1}, "q")
	limits := items(t, h, "RateLimit", map[string]int64{"r": 0, "t": 0}, "r")
	retry := int64(-1)
	if field := h.Get("Retry-After"); field != "" {
		item, err := httpsfv.UnmarshalItem([]string{field})
		if err != nil && len(field) <= 15 {
			t.Fatalf("Retry-After: %q: %v", field, err)
		}
		if err == nil {
			retry = item.Value.(int64)
		}
		if retry == 0 || w.Code < 400 {
			t.Fatalf("Retry-After: %q with %d", field, w.Code)
		}
	}
	for name, l := range limits {
		p, ok := policies[name]
		if !ok {
			t.Fatalf("%q has no policy: %v", name, h)
		}
		if retry > 0 && l["t"] > retry {
			t.Fatalf("t ends after Retry-After: %v", h)
		}
		if tt, w := l["t"], p["w"]; retry < 0 && tt > 0 && w > 0 && l["r"]*(w-1) > tt*p["q"] {
			t.Fatalf("r/t is above q/w: %v", h)
		}
	}
	if w.Code == http.StatusTooManyRequests && h.Get("Cache-Control") != "no-store" {
		t.Fatalf("a 429 may be cached: %v", h)
	}
	if _, err := ratelimitheader.ParseRateLimit(h); err != nil {
		t.Fatalf("the library's own parser refuses %v", h)
	}
}
