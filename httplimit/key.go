package httplimit

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// KeyFunc returns who is limited: the key that a limiter counts a request under.
// An empty key means that the limit does not apply, unless it is Required;
// Config.NoKey answers a request that no limit applies to. It must be safe for
// concurrent use.
//
// What a client can choose freely it can change for each request, and so have a
// fresh limit each time, or somebody else's. Take what a proxy or a check of
// yours vouches for. The keys of this package begin with their kind ("ip:",
// "apikey:", "bearer:", "subject:", "route:"), so that none can pass for one of
// another kind.
//
// Functions that make a KeyFunc panic where an argument makes none: a function
// that is nil, say.
type KeyFunc func(r *http.Request) string

// Everyone is one key for all requests: the limit of the whole service.
func Everyone() KeyFunc { return func(*http.Request) string { return "*" } }

// Pattern is a key for each route: the pattern of the ServeMux that matched
// ("GET /users/{id}"), not the path, of which a client can make up as many as it
// likes.
//
// With nil it is Request.Pattern, which the mux sets on its way to the handler:
// for middleware around the handlers that a mux serves. Elsewhere there is none,
// and so no key (Config.NoKey): all requests are denied unless another limit
// applies. Middleware around the mux itself comes too early for that and
// passes the mux, to be asked once more. All requests that it has no route for,
// and answers 404 or 405, share one key.
func Pattern(mux *http.ServeMux) KeyFunc {
	if mux == nil {
		return func(r *http.Request) string {
			if r.Pattern == "" {
				return ""
			}
			return routePrefix + r.Pattern
		}
	}
	return func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		if r.Method == http.MethodConnect && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
			// For CONNECT, the mux says of a redirect where it goes: the path
			// that the client has sent, and a slash. The route is what is there.
			there := *r
			there.URL = &url.URL{Host: r.URL.Host, Path: pattern}
			_, pattern = mux.Handler(&there)
		}
		if pattern == "" {
			pattern = "unmatched" // patterns have a slash
		}
		return routePrefix + pattern
	}
}

const routePrefix = "route:"

// Join is a key of several: per user and route, say. Where one of them says
// nothing, it says nothing. No two lists of keys have the same.
func Join(keys ...KeyFunc) KeyFunc {
	mustKeys("Join", keys)
	return func(r *http.Request) string {
		var b strings.Builder
		for i, key := range keys {
			k := key(r)
			if k == "" {
				return ""
			}
			if i > 0 {
				b.WriteByte(separator)
			}
			escape(&b, k)
		}
		return b.String()
	}
}

const separator = '|'

// escape writes a part so that a separator in it is none.
func escape(b *strings.Builder, part string) {
	if !strings.ContainsAny(part, `|\`) {
		b.WriteString(part)
		return
	}
	for i := 0; i < len(part); i++ {
		if part[i] == separator || part[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(part[i])
	}
}

// First is the first key that says something: the API key, or else the address.
// A client that may choose what the first says chooses which of them it is: of
// keys that nobody has checked take only the good ones (When).
func First(keys ...KeyFunc) KeyFunc {
	mustKeys("First", keys)
	return func(r *http.Request) string {
		for _, key := range keys {
			if k := key(r); k != "" {
				return k
			}
		}
		return ""
	}
}

// When is a key for the requests that fulfil a condition; the limit does not
// apply to others.
func When(condition func(r *http.Request) bool, key KeyFunc) KeyFunc {
	must("When", condition != nil, "condition", nil, "is required")
	must("When", key != nil, "key", nil, "is required")
	return func(r *http.Request) string {
		if !condition(r) {
			return ""
		}
		return key(r)
	}
}

func mustKeys(of string, keys []KeyFunc) {
	must(of, len(keys) > 0, "keys", "none", "must be at least one")
	for i, key := range keys {
		must(of, key != nil, fmt.Sprintf("keys[%d]", i), nil, "is required")
	}
}
