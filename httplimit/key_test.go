package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit/httplimit"
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

func TestAPIKeyIsHashed(t *testing.T) {
	key := httplimit.APIKey("x-api-key", nil)
	ann := key(request(header("X-Api-Key", "ann's secret")))
	if !strings.HasPrefix(ann, "key:") || len(ann) != len("key:")+22 || strings.Contains(ann, "ann") {
		t.Errorf("%q", ann)
	}
	if again := key(request(header("X-Api-Key", "ann's secret"))); again != ann {
		t.Error("one key, two hashes")
	}
	if bob := key(request(header("X-Api-Key", "bob's secret"))); bob == ann {
		t.Error("two keys, one hash")
	}
	for _, values := range [][]string{nil, {""}, {"ann's secret", "bob's secret"}} {
		if got := key(request(header("X-Api-Key", values...))); got != "" {
			t.Errorf("%q: %q", values, got)
		}
	}
	salted := httplimit.APIKey("X-Api-Key", []byte("pepper"))(request(header("X-Api-Key", "ann's secret")))
	other := httplimit.APIKey("X-Api-Key", []byte("salt"))(request(header("X-Api-Key", "ann's secret")))
	if salted == ann || other == salted || len(salted) != len(ann) {
		t.Errorf("%q, %q, %q", ann, salted, other)
	}
}

// What is written into Redis may not change with a release: all limits would
// begin anew. The values are those of openssl dgst, cut and in base64url.
func TestHashesStay(t *testing.T) {
	for secret, want := range map[string]string{"": "key:LPJNul-wow4m6Dsqxbning", "pepper": "key:QsgwYeETTZD-zqdlGoCHgg"} {
		if got := httplimit.APIKey("K", []byte(secret))(request(header("K", "hello"))); got != want {
			t.Errorf("secret %q: %q, want %q", secret, got, want)
		}
	}
}

func TestBearer(t *testing.T) {
	key := httplimit.Bearer(nil)
	want := httplimit.APIKey("K", nil)(request(header("K", "token")))
	for _, v := range []string{"Bearer token", "bearer token", "BEARER  token"} {
		if got := key(request(header("Authorization", v))); got != want {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
	for _, v := range []string{"", "Bearer", "Bearer ", "Basic token", "token"} {
		if got := key(request(header("Authorization", v))); got != "" {
			t.Errorf("%q: %q", v, got)
		}
	}
}

func TestSecretIsCopied(t *testing.T) {
	secret := []byte("pepper")
	key := httplimit.Subject(secret, func(*http.Request) string { return "ann" })
	before := key(request())
	secret[0] = 'x'
	if key(request()) != before {
		t.Error("the caller's slice is used")
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
	if want := []string{route, route, route, route, ""}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
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

// Two lists of keys have one joint key only if they are one.
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
