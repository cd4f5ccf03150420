package httplimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/hybridlimit/hybridlimit"
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

// APIKey returns a KeyFunc for the value of a header such as X-Api-Key. The key is clientkey.APIKey: "apikey:" and a
// hash of the value. If the header has several lines, the first counts, as with Header.Get. A request without the
// header has no key. A request with the header always has one, even if the value is empty, so that a client cannot
// evade the limit with a repeated or malformed header.
//
// The hash is SHA-256, cut to 128 bits. With a secret it is an HMAC. Without one, a reader of Redis can test whether a
// guessed API key is in use, which matters if API keys can be guessed. A new secret gives new keys, and so fresh
// limits. The secret is empty for none, or has 32 to 1024 bytes. APIKey panics if the secret has another length, or if
// header is empty.
//
// Each value has a limit of its own, so a client that invents values evades the limit. Check the API key before (When),
// or limit by address too.
func APIKey(header string, secret hybridlimit.Secret) KeyFunc {
	name := http.CanonicalHeaderKey(header)
	clientaddr.Must("httplimit: APIKey", header != "", "header", header, "must not be empty")
	clientaddr.MustSecret("httplimit: APIKey", secret)
	return func(r *http.Request) string {
		v := r.Header[name]
		if len(v) == 0 {
			return ""
		}
		return clientkey.APIKey(secret, name, v[0])
	}
}

// Bearer returns a KeyFunc for the token in "Authorization: Bearer ...". The key is clientkey.Bearer: "bearer:" and a
// hash of the token, as in APIKey. Each token has a limit of its own, so a client with many tokens has many limits.
// User gives one limit per user.
//
// If the header has several lines, the first counts. A request without the header has no key. All requests whose
// Authorization is not a bearer token (another scheme, no token, more than one word) share one key, which differs from
// every token's. If several schemes are in use, select the requests with When. Bearer panics as APIKey does for the
// secret.
func Bearer(secret hybridlimit.Secret) KeyFunc {
	clientaddr.MustSecret("httplimit: Bearer", secret)
	return func(r *http.Request) string {
		v := r.Header["Authorization"]
		if len(v) == 0 {
			return ""
		}
		return clientkey.Authorization(secret, v[0])
	}
}

// User returns a KeyFunc for the user of a request: the name that your authentication has checked and stored, for
// example in the request's context. The function of returns it. The key is clientkey.User: "user:alice". LimitFor,
// limit files and the command hybridlimit find it by that text. Without a user ("") the request has no key. Do not take
// the name from an unverified token: the client writes it. This package verifies no tokens.
//
// With a secret, the key has an HMAC of the name instead, cut to 128 bits. The secret is empty for none, or has 32 to
// 1024 bytes. User panics if the secret has another length, or if of is nil. HubConfig.HashKeys hides keys in Redis
// without such a secret.
func User(secret hybridlimit.Secret, of func(r *http.Request) string) KeyFunc {
	clientaddr.Must("httplimit: User", of != nil, "of", nil, "is required")
	clientaddr.MustSecret("httplimit: User", secret)
	return func(r *http.Request) string { return clientkey.User(secret, of(r)) }
}

// Subject is User.
//
// Deprecated: use User.
func Subject(secret hybridlimit.Secret, of func(r *http.Request) string) KeyFunc {
	return User(secret, of)
}
