package httplimit

import (
	"net/http"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/internal/clientaddr"
)

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
