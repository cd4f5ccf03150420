package httplimit

import (
	"net/http"
	"strings"
)

// KeyFunc says who is limited: the key that a limiter counts a request under.
// An empty key means that the limit does not apply. It must be safe for
// concurrent use.
//
// What a client can choose freely it can change for each request, and so have a
// fresh limit each time, or somebody else's. Take what a proxy or a check of
// yours vouches for. The keys of this package begin with their kind ("ip:",
// "key:"), so that none can pass for one of another kind.
type KeyFunc func(r *http.Request) string

// Everyone is one key for all requests: the limit of the whole service.
func Everyone() KeyFunc { return func(*http.Request) string { return "*" } }

// Pattern is a key for each route: the pattern of the ServeMux that matched
// ("GET /users/{id}"), not the path, of which a client can make up as many as it
// likes. A request that matched none has no key.
//
// With nil it is Request.Pattern, which the mux sets on its way to the handler:
// for middleware around the handlers that a mux serves. Middleware around the
// mux itself comes too early for that and passes the mux, to be asked once more.
func Pattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) string {
		pattern := r.Pattern
		if mux != nil {
			_, pattern = mux.Handler(r)
		}
		if pattern == "" {
			return ""
		}
		return "route:" + pattern
	}
}

// Join is a key of several: per user and route, say. Where one of them says
// nothing, it says nothing. No two lists of keys have the same.
func Join(keys ...KeyFunc) KeyFunc {
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
func First(keys ...KeyFunc) KeyFunc {
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
	return func(r *http.Request) string {
		if !condition(r) {
			return ""
		}
		return key(r)
	}
}
