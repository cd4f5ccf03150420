package httplimit

import (
	"net/http"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/clientkey"
)

// APIKey returns a KeyFunc for the value of a header such as X-Api-Key. The key is
// a hash of the value. If the header has several lines, the first counts, as with
// Header.Get. A request without the header has no key. A request with the header
// always has one, even if the value is empty, so that a client cannot evade the
// limit with a repeated or malformed header.
//
// The hash is SHA-256, cut to 128 bits. With a secret it is an HMAC. Without one,
// a reader of Redis can test whether a guessed API key is in use, which matters if
// API keys can be guessed. A new secret gives new keys, and so fresh limits. The
// secret is empty for none, or has 32 to 1024 bytes. APIKey panics if the secret
// has another length, or if header is empty.
//
// Each value has a limit of its own, so a client that invents values evades the
// limit. Check the API key before (When), or limit by address too.
func APIKey(header string, secret hybridlimit.Secret) KeyFunc {
	name := http.CanonicalHeaderKey(header)
	clientkey.Must("httplimit: APIKey", header != "", "header", header, "must not be empty")
	clientkey.MustSecret("httplimit: APIKey", secret)
	salt := clientkey.Salt(name)
	return func(r *http.Request) string {
		v := r.Header[name]
		if len(v) == 0 {
			return ""
		}
		return clientkey.APIKey(salt, secret, v[0])
	}
}

// Bearer returns a KeyFunc for the token in "Authorization: Bearer ...". The key is
// a hash of the token, as in APIKey. Each token has a limit of its own, so a
// client with many tokens has many limits. Subject gives one limit per subject.
//
// If the header has several lines, the first counts. A request without the header
// has no key. All requests whose Authorization is not a bearer token (another
// scheme, no token, more than one word) share one key, which differs from every
// token's. If several schemes are in use, select the requests with When. Bearer
// panics as APIKey does for the secret.
func Bearer(secret hybridlimit.Secret) KeyFunc {
	clientkey.MustSecret("httplimit: Bearer", secret)
	return func(r *http.Request) string {
		v := r.Header["Authorization"]
		if len(v) == 0 {
			return ""
		}
		return clientkey.Bearer(secret, v[0])
	}
}

// Subject returns a KeyFunc for the subject of a request, such as the user that
// your authentication stored in the request's context. The function of returns the
// subject, and the key is a hash of it, as in APIKey. Without a subject ("") the
// request has no key. Do not take the subject from an unverified token: the client
// writes it. This package verifies no tokens.
//
// Set a secret: subjects are often numbers or names, and without a secret a reader
// of Redis can find the subject of a hash by guessing. Subject panics if of is
// nil, and as APIKey does for the secret.
func Subject(secret hybridlimit.Secret, of func(r *http.Request) string) KeyFunc {
	clientkey.Must("httplimit: Subject", of != nil, "of", nil, "is required")
	clientkey.MustSecret("httplimit: Subject", secret)
	return func(r *http.Request) string { return clientkey.Subject(secret, of(r)) }
}
