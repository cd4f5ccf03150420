package httplimit_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

func request(alter ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/users/7", nil)
	for _, f := range alter {
		f(r)
	}
	return r
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

// The secrets have the least length.
const (
	pepper = hybridlimit.Secret("0123456789abcdef0123456789abcdef")
	salt   = hybridlimit.Secret("fedcba9876543210fedcba9876543210")
)

func TestAPIKeyIsHashed(t *testing.T) {
	key := httplimit.APIKey("x-api-key", "")
	ann := key(request(header("X-Api-Key", "ann's secret")))
	if !strings.HasPrefix(ann, "apikey:") || len(ann) != len("apikey:")+22 || strings.Contains(ann, "ann") {
		t.Errorf("%q", ann)
	}
	if again := key(request(header("X-Api-Key", "ann's secret"))); again != ann {
		t.Error("one key, two hashes")
	}
	if bob := key(request(header("X-Api-Key", "bob's secret"))); bob == ann {
		t.Error("two keys, one hash")
	}
	if got := key(request()); got != "" {
		t.Errorf("no header: %q", got)
	}
	salted := httplimit.APIKey("X-Api-Key", pepper)(request(header("X-Api-Key", "ann's secret")))
	other := httplimit.APIKey("X-Api-Key", salt)(request(header("X-Api-Key", "ann's secret")))
	if salted == ann || other == salted || len(salted) != len(ann) {
		t.Errorf("%q, %q, %q", ann, salted, other)
	}
}

// A request with a repeated or malformed header has a key: that of the value which
// Header.Get returns.
func TestNobodyLosesTheKey(t *testing.T) {
	apiKey, bearer := httplimit.APIKey("X-Api-Key", ""), httplimit.Bearer("")
	ann, token := apiKey(request(header("X-Api-Key", "ann"))), bearer(request(header("Authorization", "Bearer token")))
	for _, values := range [][]string{{"ann", "bob"}, {"ann", "ann"}, {"ann", ""}} {
		if got := apiKey(request(header("X-Api-Key", values...))); got != ann {
			t.Errorf("%q: %q, want that of the first", values, got)
		}
	}
	for _, values := range [][]string{{""}, {"", "ann"}} {
		if got := apiKey(request(header("X-Api-Key", values...))); got == "" || got == ann {
			t.Errorf("%q: %q", values, got)
		}
	}
	if got := bearer(request(header("Authorization", "Bearer token", "Bearer other"))); got != token {
		t.Errorf("two tokens: %q, want that of the first", got)
	}
}

// The keys in Redis must not change with a release: all limits would start afresh.
// The values are SHA-256 and HMAC, cut and in base64url. For an API key, the hashed
// text starts with the header's name and a zero byte.
func TestHashesStay(t *testing.T) {
	hello := func(*http.Request) string { return "hello" }
	for _, tc := range []struct {
		key  httplimit.KeyFunc
		want string
	}{
		{httplimit.APIKey("K", ""), "apikey:U59bhEbRdLZf2HiHzoDgWQ"},
		{httplimit.APIKey("K", pepper), "apikey:RRIKtoQ_76O3fcPjrrPJxw"},
		{httplimit.Bearer(""), "bearer:LPJNul-wow4m6Dsqxbning"},
		{httplimit.Bearer(pepper), "bearer:22i0e2PCOX6seFAlscnCEA"},
		{httplimit.User("", hello), "user:hello"},
		{httplimit.User(pepper, hello), "user#22i0e2PCOX6seFAlscnCEA"},
		{httplimit.Subject(pepper, hello), "user#22i0e2PCOX6seFAlscnCEA"},
	} {
		if got := tc.key(request(header("K", "hello"), header("Authorization", "Bearer hello"))); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// A text that a client chooses for one kind of key cannot equal a key of another
// kind.
func TestKindsOfKeysDiffer(t *testing.T) {
	r := request(header("A", "42"), header("B", "42"), header("Authorization", "Bearer 42"))
	for _, secret := range []hybridlimit.Secret{"", pepper} {
		seen := map[string]int{}
		for i, key := range []httplimit.KeyFunc{
			httplimit.APIKey("A", secret), httplimit.APIKey("B", secret), httplimit.Bearer(secret),
			httplimit.User(secret, func(*http.Request) string { return "42" }),
		} {
			if first, twice := seen[key(r)]; twice {
				t.Errorf("kinds %d and %d: %q", first, i, key(r))
			}
			seen[key(r)] = i
		}
	}
}

func TestBearer(t *testing.T) {
	key := httplimit.Bearer("")
	want := key(request(header("Authorization", "Bearer token")))
	if want == "" || want != httplimit.Bearer("")(request(header("Authorization", "Bearer token"))) {
		t.Fatalf("%q", want)
	}
	for _, v := range []string{"bearer token", "BEARER  token", "Bearer\ttoken", "bEaReR \t token\t", " Bearer token"} {
		if got := key(request(header("Authorization", v))); got != want {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
	for _, v := range []string{"", "Bearer", "Bearer ", "Basic token", "token", "Bearertoken", "Bearer token 1", "Bearer token 2", "Bearer\u00a0token"} {
		if got := key(request(header("Authorization", v))); got != "bearer:malformed" {
			t.Errorf("%q: %q", v, got)
		}
	}
	if got := key(request()); got != "" {
		t.Errorf("no header: %q", got)
	}
}

// Constructors panic with invalid arguments. The text names the argument and has no
// secret in it.
func TestConstructorsOfKeysCheckTheirArguments(t *testing.T) {
	a := fixed("a")
	yes := func(*http.Request) bool { return true }
	who := func(*http.Request) string { return "ann" }
	for want, construct := range map[string]func(){
		`APIKey: header ("") must not be empty`:                     func() { httplimit.APIKey("", "") },
		`APIKey: secret ([secret]) must be 32 to 1024 bytes, not 6`: func() { httplimit.APIKey("K", "pepper") },
		`Bearer: secret ([secret]) must be 32 to 1024 bytes, not 6`: func() { httplimit.Bearer("pepper") },
		`User: secret ([secret]) must be 32 to 1024 bytes, not 6`:   func() { httplimit.User("pepper", who) },
		"User: of (<nil>) is required":                              func() { httplimit.User("", nil) },
		`Join: keys ("none") must be at least one`:                  func() { httplimit.Join() },
		"Join: keys[1] (<nil>) is required":                         func() { httplimit.Join(a, nil) },
		`First: keys ("none") must be at least one`:                 func() { httplimit.First() },
		"First: keys[0] (<nil>) is required":                        func() { httplimit.First(nil, a) },
		"When: condition (<nil>) is required":                       func() { httplimit.When(nil, a) },
		"When: key (<nil>) is required":                             func() { httplimit.When(yes, nil) },
	} {
		func() {
			defer func() {
				err, _ := recover().(error)
				if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v, want %s", err, want)
				}
			}()
			construct()
		}()
	}
}

func TestPattern(t *testing.T) {
	var seen []string
	mux := http.NewServeMux()
	inside := httplimit.Pattern(nil)
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, inside(r)) })
	outside := httplimit.Pattern(mux)
	for _, path := range []string{"/users/7", "/users/8", "/nowhere"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		seen = append(seen, outside(r))
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	route := "route:GET /users/{id}"
	if want := []string{route, route, route, route, "route:unmatched"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// With any requests there is one key per route, and one more for all others.
func TestRoutesAreFew(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"/users/{id}/", "GET /a/{$}", "/literal/", "CONNECT /tunnel/{x}/"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	key := httplimit.Pattern(mux)
	seen := map[string]bool{}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodConnect} {
		for i := range 20 {
			for _, path := range []string{"/users/%d", "/users/%d/", "/users/%d/x", "/users//%d", "/literal", "/a/%d", "/nowhere/%d", "/tunnel/%d", "/tunnel/%d/"} {
				r := httptest.NewRequest(http.MethodGet, strings.ReplaceAll(path, "%d", fmt.Sprint(i)), nil)
				r.Method = method
				seen[key(r)] = true
			}
		}
	}
	want := []string{"route:/literal/", "route:/users/{id}/", "route:CONNECT /tunnel/{x}/", "route:unmatched"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Middleware around a mux, with this limit alone: the responses are the mux's own,
// and requests that it answers 404 or 405 are limited too.
func TestPatternAroundAMux(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	for name, key := range map[string]httplimit.KeyFunc{
		"alone": httplimit.Pattern(mux), "with the address": httplimit.Join(httplimit.PeerIP(), httplimit.Pattern(mux)),
	} {
		var log lines
		h := middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{Limiter: newLocal(t, "route", hybridlimit.PerHour(2)), Key: key})(mux)
		for _, tc := range []struct {
			method, path string
			want         int
		}{
			{http.MethodGet, "/users/7", 200},
			{http.MethodGet, "/users/8", 200},
			{http.MethodGet, "/users/9", 429},
			{http.MethodGet, "/nowhere", 404},
			{http.MethodPost, "/users/7", 405},
			{http.MethodGet, "/no", 429},
		} {
			res := get(h, func(r *http.Request) { r.Method, r.URL.Path = tc.method, tc.path })
			if res.StatusCode != tc.want {
				t.Errorf("%s, %s %s: %d, want %d", name, tc.method, tc.path, res.StatusCode, tc.want)
			}
		}
		if log.count() != 0 {
			t.Errorf("%s: %s", name, log.String())
		}
	}
}

func TestCombinations(t *testing.T) {
	a, b, none := fixed("a"), fixed("b"), fixed("")
	yes := func(*http.Request) bool { return true }
	no := func(*http.Request) bool { return false }
	for _, tc := range []struct {
		name string
		key  httplimit.KeyFunc
		want string
	}{
		{"Everyone", httplimit.Everyone(), "*"},
		{"Join", httplimit.Join(a, b), "a|b"},
		{"Join of one", httplimit.Join(a), "a"},
		{"Join with none", httplimit.Join(a, none), ""},
		{"First", httplimit.First(none, b, a), "b"},
		{"First of none", httplimit.First(none), ""},
		{"When", httplimit.When(yes, a), "a"},
		{"When not", httplimit.When(no, a), ""},
	} {
		if got := tc.key(request()); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Two lists of keys have the same joint key only if they are equal.
func TestJoinIsOneToOne(t *testing.T) {
	part := rapid.StringOfN(rapid.RuneFrom([]rune(`ab|\`)), 1, 4, -1)
	list := rapid.SliceOfN(part, 1, 3)
	join := func(parts []string) string {
		var keys []httplimit.KeyFunc
		for _, p := range parts {
			keys = append(keys, fixed(p))
		}
		return httplimit.Join(keys...)(request())
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		if same := join(a) == join(b); same != slices.Equal(a, b) {
			t.Errorf("%q and %q: %q and %q", a, b, join(a), join(b))
		}
	})
}
