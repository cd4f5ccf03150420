package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// APIKey is the hash of what a header holds, X-Api-Key for example; a request
// without it has no key. Several lines of the header are as good as none, since
// nobody can tell which of them is checked later.
//
// The hash is SHA-256, cut to 128 bits, keyed with the secret (HMAC) if there is
// one: then nobody who reads Redis can try out which keys are in use. Another
// secret is other keys, hence fresh limits. Nil: none, which is enough for keys
// that cannot be guessed.
//
// A key that nobody has checked may be made up, and each that is has a limit of
// its own: check before, or limit by address too.
func APIKey(header string, secret []byte) KeyFunc {
	name := http.CanonicalHeaderKey(header)
	return Subject(secret, func(r *http.Request) string {
		if v := r.Header[name]; len(v) == 1 {
			return v[0]
		}
		return ""
	})
}

// Bearer is the hash of the token in "Authorization: Bearer ...", as APIKey is
// of a header: each token has a limit of its own, so a client with many tokens
// has many. For one limit per subject, however many tokens it has, use Subject.
func Bearer(secret []byte) KeyFunc {
	return Subject(secret, func(r *http.Request) string {
		v := r.Header["Authorization"]
		if len(v) != 1 {
			return ""
		}
		scheme, token, _ := strings.Cut(v[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		return strings.TrimLeft(token, " ")
	})
}

// Subject is the hash of whom the request is for, as your authentication has
// found out: what it put into the request's context. This package verifies no
// token, and so reads none: a subject out of one that nobody has verified is
// whatever the client wrote there.
func Subject(secret []byte, of func(r *http.Request) string) KeyFunc {
	secret = append([]byte(nil), secret...)
	return func(r *http.Request) string {
		who := of(r)
		if who == "" {
			return ""
		}
		return hashed(secret, who)
	}
}

// hashBytes are kept of a hash: 2⁶⁴ keys before two are likely to meet.
const hashBytes = 16

const hashPrefix = "key:"

func hashed(secret []byte, who string) string {
	if len(secret) > 0 {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(who))
		return encoded(mac.Sum(nil))
	}
	var room [128]byte // longer ones cost an allocation
	sum := sha256.Sum256(append(room[:0], who...))
	return encoded(sum[:])
}

func encoded(sum []byte) string {
	var key [len(hashPrefix) + (hashBytes*8+5)/6]byte
	copy(key[:], hashPrefix)
	base64.RawURLEncoding.Encode(key[len(hashPrefix):], sum[:hashBytes])
	return string(key[:])
}
