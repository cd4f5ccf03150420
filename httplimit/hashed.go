package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/hybridlimit/hybridlimit"
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
	must("APIKey", header != "", "header", header, "must not be empty")
	mustSecret("APIKey", secret)
	salt := name + "\x00" // the same value in two headers gives two keys
	return func(r *http.Request) string {
		v := r.Header[name]
		if len(v) == 0 {
			return ""
		}
		return hashed("apikey:", secret, salt, v[0])
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
	mustSecret("Bearer", secret)
	return func(r *http.Request) string {
		v := r.Header["Authorization"]
		if len(v) == 0 {
			return ""
		}
		token, ok := bearerToken(v[0])
		if !ok {
			return "bearer:malformed" // shorter than any hash
		}
		return hashed("bearer:", secret, "", token)
	}
}

// bearerToken reads credentials of RFC 6750, section 2.1: the scheme, in upper or
// lower case, and one word. It accepts any number of spaces and tabs between the
// two, because code that checks tokens does so too.
func bearerToken(credentials string) (token string, ok bool) {
	const blank = " \t"
	credentials = strings.Trim(credentials, blank)
	i := strings.IndexAny(credentials, blank)
	if i < 0 || !strings.EqualFold(credentials[:i], "Bearer") {
		return "", false
	}
	token = strings.TrimLeft(credentials[i:], blank)
	return token, !strings.ContainsAny(token, blank)
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
	must("Subject", of != nil, "of", nil, "is required")
	mustSecret("Subject", secret)
	return func(r *http.Request) string {
		who := of(r)
		if who == "" {
			return ""
		}
		return hashed("subject:", secret, "", who)
	}
}

// must panics if an argument of a KeyFunc's constructor is not ok. That is a
// mistake in the program.
func must(of string, ok bool, argument string, value any, problem string) {
	if ok {
		return
	}
	var bad hybridlimit.Violations
	bad.Add(argument, value, problem)
	panic(bad.Err("httplimit: " + of))
}

// mustSecret panics if the secret has a wrong length.
func mustSecret(of string, secret hybridlimit.Secret) {
	var bad hybridlimit.Violations
	bad.AddSecret("secret", secret)
	if err := bad.Err("httplimit: " + of); err != nil {
		panic(err)
	}
}

// hashBytes is the length of the hash that is kept: a collision is likely after
// 2⁶⁴ keys.
const hashBytes = 16

// hashed returns the key for the text who. The prefix kind keeps keys of different
// kinds apart: a client may choose the text of another kind.
func hashed(kind string, secret hybridlimit.Secret, salt, who string) string {
	if len(secret) > 0 {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(salt))
		mac.Write([]byte(who))
		return encoded(kind, mac.Sum(nil))
	}
	var room [128]byte // a longer text costs an allocation
	sum := sha256.Sum256(append(append(room[:0], salt...), who...))
	return encoded(kind, sum[:])
}

// encoded returns kind and the first hashBytes of sum in base64.
func encoded(kind string, sum []byte) string {
	const length = (hashBytes*8 + 5) / 6
	var room [32]byte
	b := append(room[:0], kind...)
	b = base64.RawURLEncoding.AppendEncode(b, sum[:hashBytes])
	return string(b[: len(kind)+length : len(kind)+length])
}
