package httplimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/internal/clientaddr"
)

// KeyFunc returns the key that a limiter counts a request for. If it returns "", the limit does not apply to the
// request, unless the limit is Required; Config.NoKey answers a request to which no limit applies. A KeyFunc must be
// safe for concurrent use.
//
// Use only values that a proxy or a check of yours guarantees. If a client chooses its key freely, it can take a new
// key, and so a fresh limit, for each request, or use up another client's limit. The keys of this package start with
// their kind ("ip:", "apikey:", "bearer:", "user:", "route:"), so that a key of one kind cannot equal one of another.
// Package clientkey makes the same keys, for LimitFor, limit files and tests.
//
// A function that returns a KeyFunc and no error panics if an argument is invalid, for example if it is nil.
type KeyFunc func(r *http.Request) string

// Everyone returns a KeyFunc with one key for all requests, for a limit of the whole service.
func Everyone() KeyFunc { return func(*http.Request) string { return clientkey.Everyone } }

// Pattern returns a KeyFunc with a key per route. The route is the ServeMux pattern that matches, such as "GET
// /users/{id}". It is not the path, because a client can invent any number of paths. The key is clientkey.Route of it:
// "route:GET /users/{id}".
//
// Pattern(nil) uses Request.Pattern, which a ServeMux sets before it calls a handler. It is for middleware around those
// handlers. Elsewhere Request.Pattern is empty and the request has no key: Config.NoKey answers it unless another limit
// applies.
//
// Middleware around the mux itself needs Pattern(mux), which looks the route up in the mux, at the cost of a second
// lookup. All requests without a route, which the mux answers 404 or 405, share one key.
func Pattern(mux *http.ServeMux) KeyFunc {
	if mux == nil {
		return func(r *http.Request) string {
			if r.Pattern == "" {
				return ""
			}
			return clientkey.Route(r.Pattern)
		}
	}
	return func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		if r.Method == http.MethodConnect && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
			// For a redirect of CONNECT, the mux returns the target instead of a pattern: the client's path and a
			// slash. The route is the pattern of that target.
			there := *r
			there.URL = &url.URL{Host: r.URL.Host, Path: pattern}
			_, pattern = mux.Handler(&there)
		}
		if pattern == "" {
			pattern = clientkey.Unmatched
		}
		return clientkey.Route(pattern)
	}
}

// Join returns a KeyFunc that combines several keys, for example user and route. If one of them is empty, the result is
// empty. Different lists of keys give different results.
func Join(keys ...KeyFunc) KeyFunc {
	clientaddr.MustKeys("httplimit: Join", keys, isNilKey)
	return func(r *http.Request) string {
		var room [4]string // more parts cost an allocation
		parts := room[:0]
		for _, key := range keys {
			k := key(r)
			if k == "" {
				return "" // the other functions need not run
			}
			parts = append(parts, k)
		}
		return clientkey.Join(parts...)
	}
}

// First returns a KeyFunc with the first key that is not empty, for example the API key, or else the address. A client
// that can choose the first key can choose its limit: accept only checked keys there (When).
func First(keys ...KeyFunc) KeyFunc {
	clientaddr.MustKeys("httplimit: First", keys, isNilKey)
	return func(r *http.Request) string {
		for _, key := range keys {
			if k := key(r); k != "" {
				return k
			}
		}
		return ""
	}
}

// When returns a KeyFunc for the requests that meet a condition. It is empty for other requests: the limit does not
// apply to them.
func When(condition func(r *http.Request) bool, key KeyFunc) KeyFunc {
	clientaddr.Must("httplimit: When", condition != nil, "condition", nil, "is required")
	clientaddr.Must("httplimit: When", key != nil, "key", nil, "is required")
	return func(r *http.Request) string {
		if !condition(r) {
			return ""
		}
		return key(r)
	}
}

func isNilKey(key KeyFunc) bool { return key == nil }
