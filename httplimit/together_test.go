package httplimit_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func violated(t *testing.T, res *http.Response) []string {
	t.Helper()
	var p struct {
		Policies []string `json:"violated-policies"`
	}
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p.Policies
}

// TestFieldsOfOthersAreCopied checks that a field which another middleware has set is not extended in place: its array
// may have room that belongs to the other.
func TestFieldsOfOthersAreCopied(t *testing.T) {
	l := newLocal(t, "mine", hybridlimit.PerHour(1))
	handler := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: fixed("k")})(&served{})
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		policies, lines := []string{`"theirs";q=5;w=60`, "spare", "spare"}, []string{`"theirs";r=3;t=9`, "spare", "spare"}
		w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"] = policies[:1], lines[:1]
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != status || policies[1] != "spare" || lines[1] != "spare" {
			t.Errorf("%d: %q, %q", w.Code, policies, lines)
		}
		if got := w.Header()["Ratelimit-Policy"]; len(got) != 2 || got[0] != policies[0] {
			t.Errorf("%d: RateLimit-Policy is %q", w.Code, got)
		}
	}
}

// Limiters without names, and one limiter under two keys: a denial names the limit
// that denied, and the figures are those of each limit.
func TestJointDenialsNameTheirLimit(t *testing.T) {
	shared := newLocal(t, "", hybridlimit.PerHour(5))
	unnamed := newLocal(t, "", hybridlimit.PerHour(2))
	handler := middleware(t, httplimit.Config{},
		httplimit.Limit{Limiter: shared, Key: func(r *http.Request) string { return r.Header.Get("User") }, Name: "user"},
		httplimit.Limit{Limiter: shared, Key: fixed("all"), Name: "all"},
		httplimit.Limit{Limiter: unnamed, Key: func(r *http.Request) string { return "route of " + r.Header.Get("User") }, Name: "route"})(&served{})
	for _, tc := range []struct {
		user, left string
		denied     []string
	}{
		{"ann", `"user";r=4, "all";r=4, "route";r=1`, nil},
		{"ann", `"user";r=3, "all";r=3, "route";r=0`, nil},
		{"ann", `"route";r=0`, []string{"route"}},
		{"bob", `"user";r=4, "all";r=2, "route";r=1`, nil},
		{"bob", `"user";r=3, "all";r=1, "route";r=0`, nil},
		{"cid", `"user";r=4, "all";r=0, "route";r=1`, nil},
		{"dan", `"all";r=0`, []string{"all"}},
		{"ann", `"route";r=0`, []string{"all", "route"}}, // which has the longer wait
	} {
		res := get(handler, header("User", tc.user))
		var left []string
		limits, err := ratelimitheader.ParseRateLimit(res.Header)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range limits {
			left = append(left, `"`+l.Policy+`";r=`+string(rune('0'+l.Remaining)))
		}
		if got := strings.Join(left, ", "); got != tc.left {
			t.Errorf("%s: %s, want %s", tc.user, got, tc.left)
		}
		if len(tc.denied) > 0 != (res.StatusCode == 429) {
			t.Errorf("%s: %d", tc.user, res.StatusCode)
		} else if res.StatusCode == 429 {
			if got := violated(t, res); !slices.Equal(got, tc.denied) {
				t.Errorf("%s: violated %q, want %q", tc.user, got, tc.denied)
			}
		}
		if got := res.Header.Values("RateLimit-Policy"); len(got) != 3 {
			t.Errorf("%s: %q", tc.user, got)
		}
	}
}

// hubOf returns limits of one hub, ready for use.
func hubOf(t *testing.T, cfgs map[string]hybrid.Config, limits map[string]hybridlimit.Limit) map[string]*hybrid.Limiter {
	t.Helper()
	hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	made := map[string]*hybrid.Limiter{}
	for name, limit := range limits {
		cfg := cfgs[name]
		cfg.Name, cfg.MaxWait = name, time.Second
		if made[name], err = hub.Limiter(limit, cfg); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(3 * time.Second)
	return made
}

// In a joint call, the shadow header names the shadow limit. The figures are those
// of the limits in force, even if the shadow limit is the narrowest.
func TestShadowLimitBesideARealOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hubOf(t, map[string]hybrid.Config{"dark": {Shadow: true}}, map[string]hybridlimit.Limit{
			"real": hybridlimit.PerHour(10), "dark": hybridlimit.PerHour(1),
		})
		handler := middleware(t, httplimit.Config{ShadowHeader: true, XRateLimit: true},
			httplimit.Limit{Limiter: l["real"], Key: fixed("k"), Bucket: "r"}, httplimit.Limit{Limiter: l["dark"], Key: fixed("k"), Bucket: "d"})(&served{})
		for i := range 5 {
			res := get(handler)
			shadow := ""
			if i > 0 {
				shadow = "dark"
			}
			left := string(rune('9' - i))
			if res.StatusCode != 200 || res.Header.Get("X-RateLimit-Shadow") != shadow || res.Header.Get("X-RateLimit-Remaining") != left ||
				res.Header.Get("X-RateLimit-Bucket") != "r" || !strings.HasPrefix(res.Header.Get("RateLimit"), `"real";r=`+left+";") || strings.Contains(res.Header.Get("RateLimit"), "dark") {
				t.Errorf("request %d: %d, %v", i, res.StatusCode, res.Header)
			}
		}
	})
}

// A limit that a switch overrides has no figures; the other limits keep theirs.
func TestFieldsFollowTheSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hubOf(t, nil, map[string]hybridlimit.Limit{"wide": hybridlimit.PerHour(100), "narrow": hybridlimit.PerHour(1)})
		one := middleware(t, httplimit.Config{XRateLimit: true, ShadowHeader: true}, httplimit.Limit{Limiter: l["narrow"], Key: fixed("k")})(&served{})
		two := middleware(t, httplimit.Config{XRateLimit: true, ShadowHeader: true},
			httplimit.Limit{Limiter: l["wide"], Key: fixed("k")}, httplimit.Limit{Limiter: l["narrow"], Key: fixed("k")})(&served{})
		if res := get(one); res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("RateLimit"), `"narrow";r=0;`) {
			t.Fatalf("%d, %v", res.StatusCode, res.Header)
		}
		for _, tc := range []struct {
			to          hybrid.Switch
			alone, both int    // status
			shadow      string // X-RateLimit-Shadow
			figures     bool   // of wide
		}{
			{hybrid.SwitchNormal, 429, 429, "", false},
			{hybrid.SwitchShadow, 200, 200, "narrow", true},
			{hybrid.SwitchAllowAll, 200, 200, "", true},
			{hybrid.SwitchDenyAll, 429, 429, "", false},
			{hybrid.SwitchNormal, 429, 429, "", false},
		} {
			if err := l["narrow"].SetSwitch(tc.to); err != nil {
				t.Fatal(err)
			}
			a, b := get(one), get(two)
			if a.StatusCode != tc.alone || b.StatusCode != tc.both || a.Header.Get("X-RateLimit-Shadow") != tc.shadow || b.Header.Get("X-RateLimit-Shadow") != tc.shadow {
				t.Errorf("%v: %d %v, %d %v", tc.to, a.StatusCode, a.Header, b.StatusCode, b.Header)
			}
			if tc.to == hybrid.SwitchNormal {
				continue
			}
			for _, field := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				if v := a.Header.Get(field); v != "" {
					t.Errorf("%v: a limit that is not in force is published: %s: %s", tc.to, field, v)
				}
				if v := strings.Join(b.Header.Values(field), ", "); strings.Contains(v, "narrow") || v != "" != tc.figures {
					t.Errorf("%v, with another limit: %s: %s", tc.to, field, v)
				}
			}
		}
	})
}

// An invalid key or cost frees a request from no limit, neither its own nor the
// others. With FailOpen, a closed limiter is left out alone.
func TestFailOpenKeepsTheOtherLimits(t *testing.T) {
	big := strings.Repeat("x", adapter.DefaultMaxKeyBytes+1)
	agent := func(r *http.Request) string { return r.Header.Get("User-Agent") }
	for _, together := range []bool{true, false} {
		user, all := newLocal(t, "user", hybridlimit.PerHour(100)), newLocal(t, "all", hybridlimit.PerHour(2))
		gone := newLocal(t, "gone", hybridlimit.PerHour(100))
		limits := []httplimit.Limit{{Limiter: user, Key: agent}, {Limiter: all, Key: httplimit.Everyone()}}
		if !together {
			limits[0] = httplimit.Limit{Limiter: struct{ hybridlimit.Limiter }{user}, Key: agent, Name: "user"}
		}
		var log lines
		h := &served{}
		mw := func(limits ...httplimit.Limit) http.Handler {
			return middleware(t, httplimit.Config{Failure: httplimit.FailOpen, Logger: log.logger()}, limits...)(h)
		}
		for range 5 {
			if res := get(mw(limits...), header("User-Agent", big)); res.StatusCode != 400 || h.requests() != 0 {
				t.Errorf("together %t: a long key: %d, %d served", together, res.StatusCode, h.requests())
			}
		}
		limits[0].Cost = func(*http.Request) int64 { return -1 }
		if res := get(mw(limits...), header("User-Agent", "ann")); res.StatusCode != 400 || h.requests() != 0 {
			t.Errorf("together %t: a bad cost: %d", together, res.StatusCode)
		}
		limits[0] = httplimit.Limit{Limiter: gone, Key: agent}
		if !together {
			limits[0] = httplimit.Limit{Limiter: struct{ hybridlimit.Limiter }{gone}, Key: agent, Name: "gone"}
		}
		gone.Close()
		handler := mw(limits...)
		for i, want := range []int{200, 200, 429} {
			res := get(handler, header("User-Agent", "ann"))
			if res.StatusCode != want {
				t.Errorf("together %t: a closed limiter, request %d: %d, want %d", together, i, res.StatusCode, want)
			}
			if got := res.Header.Values("RateLimit-Policy"); !slices.Equal(got, []string{`"all";q=2;w=3600`}) {
				t.Errorf("together %t: RateLimit-Policy = %q, want only the limit that was asked", together, got)
			}
		}
		if log.count() == 0 {
			t.Errorf("together %t: nothing is logged", together)
		}
	}
}

// With Required, a request without a key is not left to the other limits alone.
func TestRequiredKey(t *testing.T) {
	var failed error
	handler := middleware(t, httplimit.Config{Denied: func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
		failed = d.Err
		w.WriteHeader(d.Status)
	}},
		httplimit.Limit{Limiter: newLocal(t, "all", hybridlimit.PerHour(100)), Key: httplimit.Everyone()},
		httplimit.Limit{Limiter: newLocal(t, "user", hybridlimit.PerHour(1)), Key: httplimit.APIKey("X-Api-Key", ""), Required: true})(&served{})
	if res := get(handler); res.StatusCode != 429 || !errors.Is(failed, httplimit.ErrNoKey) {
		t.Errorf("no key: %d, %v", res.StatusCode, failed)
	}
	for i, want := range []int{200, 429, 429} {
		values := []string{"ann"}
		if i == 2 {
			values = []string{"ann", "ann"}
		}
		if res := get(handler, header("X-Api-Key", values...)); res.StatusCode != want {
			t.Errorf("%q: %d, want %d", values, res.StatusCode, want)
		}
	}
}

// If a handler, or middleware around this one, changes the lines of a field in
// place, only this response changes.
func TestFieldsAreOfOneResponse(t *testing.T) {
	l := newLocal(t, "api", hybridlimit.PerHour(2))
	inner := middleware(t, httplimit.Config{XRateLimit: true}, httplimit.Limit{Limiter: l, Key: fixed("k"), Bucket: "b"})(&served{})
	for i := range 4 {
		w := httptest.NewRecorder()
		inner.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		for name, want := range map[string]string{"Ratelimit-Policy": `"api";q=2;w=3600`, "X-Ratelimit-Bucket": "b", "X-Ratelimit-Limit": "2"} {
			if got := w.Header()[name]; len(got) != 1 || got[0] != want {
				t.Errorf("request %d: %s: %q, want %q", i, name, got, want)
			}
		}
		for _, lines := range w.Header() {
			for j := range lines {
				lines[j] = "spoilt"
			}
			_ = append(lines, "spoilt")
		}
	}
}
