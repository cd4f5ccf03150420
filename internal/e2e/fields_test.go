package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	_ "github.com/hybridlimit/hybridlimit/internal/rapidseed"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// items reads a field with a parser that is not ours, and holds it against the
// grammar of draft-ietf-httpapi-ratelimit-headers-11: a List of Strings, whose
// parameters are non-negative Integers of some names.
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
			t.Fatalf("%s: %q: %T is no item", field, lines, member)
		}
		name, ok := item.Value.(string)
		if !ok {
			t.Fatalf("%s: %q: %T is no String", field, lines, item.Value)
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
			t.Fatalf("%s: %q: no %s", field, lines, required)
		}
		if _, twice := read[name]; twice {
			t.Fatalf("%s: %q: %q twice", field, lines, name)
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

// Whatever limiters answer, what is sent is of the grammar, Retry-After is not
// before the end of t, and a client that spreads r over t is no faster than the
// policy.
func TestFieldsAreOfTheGrammar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.OneOf(rapid.Int64Range(-3, 100), rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, 999_999_999_999_999, 1e15}))
		var limits []httplimit.Limit
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			res := hybridlimit.Result{
				Limit: units.Draw(t, "limit"), Remaining: units.Draw(t, "remaining"), ResetAfter: drawDuration(t, "reset"),
				Source: hybridlimit.Source(rapid.IntRange(0, hybridlimit.NumSources-1).Draw(t, "source")),
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
				t.Fatalf("names that are none, or not different: %v", err)
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

// differ says whether the limits have names, and those differ.
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

// Limits that are asked together, of limiters without names or with one, several
// of them the same limiter: each is told of by the name that it was given, with
// what is left of it and of no other, and a denial names those that deny.
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
				t.Fatalf("%d, though %v deny", w.Code, deny)
			}
			told := items(t, w.Result().Header, "RateLimit", map[string]int64{"r": 0, "t": 0}, "r")
			policies := items(t, w.Result().Header, "RateLimit-Policy", map[string]int64{"q": 0, "w": 1}, "q")
			if len(policies) != len(of) || len(told) != len(of) && len(deny) == 0 || len(told) != 1 && len(deny) > 0 {
				t.Fatalf("%v, %v: of %d limits, %v deny", told, policies, len(of), deny)
			}
			for name, l := range told {
				res, err := of[name].limiter.Peek(context.Background(), of[name].key)
				if err != nil || res.Remaining != l["r"] || len(deny) > 0 && !deny[name] {
					t.Fatalf("%s: %v, is %+v, %v; %v deny", name, l, res, err, deny)
				}
			}
			if len(deny) == 0 {
				continue
			}
			var problem struct {
				Policies []string `json:"violated-policies"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || len(problem.Policies) != len(deny) {
				t.Fatalf("violated are %q, %v; %v deny", problem.Policies, err, deny)
			}
			for _, name := range problem.Policies {
				if !deny[name] {
					t.Fatalf("violated are %q; %v deny", problem.Policies, deny)
				}
			}
		}
	})
}

// The same with limiters that decide, and say what they enforce.
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

// check sends a request and reads all that its response says.
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
			t.Fatalf("%q is no policy: %v", name, h)
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
	if _, err := httplimit.ParseRateLimit(h); err != nil {
		t.Fatalf("our own parser refuses %v", h)
	}
}

// Our parser takes what another one takes, as far as the draft allows that, and
// reads the same.
func TestParserAgainstAnother(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		`"a"`, `"b\"\\c"`, `"`, `\`, "a", "*t/x:y", "r", "t", "q", ";", "; ", "=", ",", ", ", "\t", " ", "1", "0", "-7", "-", "1.5", "1.", ".5", "1.2345",
		"999999999999999", "1000000000000000", "123456789012.1", "1234567890123.1", "?1", "?2", ":YQ==:", ":YQ:", ":=:", ":Y!:", ":", "@123", "@1.5", `%"a%c3%bc"`, `%"%C3"`, `%"%c3"`, "(", ")", `("a")`,
		`"a";r=1`, `"b";r=0;t=30`, `;pk=:cHM=:`, `;t=5`, `;r=2`, "é",
	})
	param := rapid.SampledFrom([]string{
		";r=1", ";r=999999999999999", "; r=7", ";t=30", ";t=999999999999999", ";pk=:cHM=:", ";x", ";x=?0", ";*a=tok", ";d=1.25", ";s=\"q\\\"\"", ";at=@-5", ";u=%\"a%c3%bc\"", ";r=-1", ";t=?1", ";pk=\"no\"",
	})
	item := rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom([]string{`"a"`, `""`, `"b c\"\\"`, `"a"`, "tok", "1"}).Draw(t, "name")
		return name + ";r=3" + strings.Join(rapid.SliceOfN(param, 0, 3).Draw(t, "params"), "")
	})
	var good, bad int
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			items := rapid.SliceOfN(item, 1, 3).Draw(t, "items")
			text := strings.Join(items, rapid.SampledFrom([]string{",", ", ", "\t,  "}).Draw(t, "comma"))
			if rapid.IntRange(0, 2).Draw(t, "broken") == 0 {
				at := rapid.IntRange(0, len(text)).Draw(t, "at")
				text = text[:at] + piece.Draw(t, "piece") + text[at:]
			}
			return text
		}), 1, 2).Draw(t, "lines")
		got, err := httplimit.ParseRateLimit(http.Header{"Ratelimit": lines})
		if err != nil && !errors.Is(err, httplimit.ErrMalformed) {
			t.Fatal(err)
		}
		want, valid := reference(lines)
		if err == nil && !valid && unpadded(lines) {
			return
		}
		if (err == nil) != valid {
			t.Fatalf("%q: %v, the other parser says valid: %t", lines, err, valid)
		}
		if !valid {
			bad++
			return
		}
		good++
		if len(got) != len(want) {
			t.Fatalf("%q: %+v, want %+v", lines, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%q: %+v, want %+v", lines, got[i], want[i])
			}
		}
	})
	if good == 0 || bad == 0 {
		t.Errorf("%d valid, %d not: the texts show nothing", good, bad)
	}
}

var byteSequence = regexp.MustCompile(`:([A-Za-z0-9+/]+):`)

// unpadded says whether there are bytes in base64 without padding. Parsers
// should take them (RFC 9651, section 4.2.7); ours does, the other does not.
func unpadded(lines []string) bool {
	for _, m := range byteSequence.FindAllStringSubmatch(strings.Join(lines, ","), -1) {
		if len(m[1])%4 != 0 {
			return true
		}
	}
	return false
}

// reference is ParseRateLimit over the other parser.
func reference(lines []string) (limits []httplimit.ServiceLimit, valid bool) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil, false
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, false
		}
		var l httplimit.ServiceLimit
		if l.Policy, ok = item.Value.(string); !ok {
			return nil, false
		}
		r, _ := item.Params.Get("r")
		if l.Remaining, ok = r.(int64); !ok || l.Remaining < 0 {
			return nil, false
		}
		if v, some := item.Params.Get("t"); some {
			n, ok := v.(int64)
			if !ok || n < 0 {
				return nil, false
			}
			l.Window = time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
		}
		if v, some := item.Params.Get("pk"); some {
			b, ok := v.([]byte)
			if !ok {
				return nil, false
			}
			l.PartitionKey = string(b)
		}
		limits = append(limits, l)
	}
	return limits, true
}

// FuzzParser is TestParserAgainstAnother on any bytes.
func FuzzParser(f *testing.F) {
	for _, s := range []string{`"default";r=50;t=30`, `"a";r=1;pk=:cHM=:, "b";r=2`, `"a";r=1;x=?1;y=%"a";z=@5`, `"\"";r=0`, `a;r=1`, `"a";r=1,`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 8<<10 || strings.Count(s, ",") >= 64 { // longer than ours reads
			return
		}
		got, err := httplimit.ParseRateLimit(http.Header{"Ratelimit": {s}})
		want, valid := reference([]string{s})
		if err == nil && !valid && unpadded([]string{s}) {
			return
		}
		if (err == nil) != valid || len(got) != len(want) {
			t.Fatalf("%q: %+v, %v; want %+v, %t", s, got, err, want, valid)
		}
	})
}
