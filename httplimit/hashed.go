package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// APIKey is the hash of what a header holds, X-Api-Key for example, as
// Header.Get reads it: of several lines the first. A request without the header
// has no key. One that has the header always has a key, also if it is empty:
// nobody gets rid of a limit by sending it twice or broken.
//
// The hash is SHA-256, cut to 128 bits, keyed with the secret (HMAC) if there is
// one. Without, whoever reads Redis can try out which keys are in use, which is
// of use to them only where keys can be guessed. Another secret is other keys,
// hence fresh limits. Empty: none. It panics where the header has no name, or
// the secret is not of 32 to 1024 bytes.
//
// A key that nobody has checked may be made up, and each that is has a limit of
// its own: check before (When), or limit by address too.
func APIKey(header string, secret hybridlimit.Secret) KeyFunc {
	name := http.CanonicalHeaderKey(header)
	must("APIKey", header != "", "header", header, "must not be empty")
	mustSecret("APIKey", secret)
	salt := name + "\x00" // keys of two headers are not each other's
	return func(r *http.Request) string {
		v := r.Header[name]
		if len(v) == 0 {
			return ""
		}
		return hashed("apikey:", secret, salt, v[0])
	}
}

// Bearer is the hash of the token in "Authorization: Bearer ...", as APIKey is
// of a header: each token has a limit of its own, so a client with many tokens
// has many. For one limit per subject, however many tokens it has, use Subject.
//
// Of several lines the first counts. A request without the header has no key.
// All whose Authorization is anything but a bearer token (another scheme, no
// token, more than one word) share one key, which is no token's: where several
// schemes are in use, pick the requests with When. It panics as APIKey does.
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

// bearerToken reads credentials of RFC 6750, section 2.1: the scheme in any
// case, and one word. Spaces and tabs between them are as many as there are,
// since those who check tokens split there too.
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

// Subject is the hash of whom the request is for, as your authentication has
// found out: what it put into the request's context. "" is no key. This package
// verifies no token, and so reads none: a subject out of one that nobody has
// verified is whatever the client wrote there.
//
// Subjects are often numbers or names, which can be guessed: without a secret
// whoever reads Redis finds out whose a hash is by trying. Set one. It panics as
// APIKey does, and where there is no function.
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

// must panics with what is wrong with an argument of a KeyFunc's constructor,
// which is a mistake of the program.
func must(of string, ok bool, argument string, value any, problem string) {
	if ok {
		return
	}
	var bad hybridlimit.Violations
	bad.Add(argument, value, problem)
	panic(bad.Err("httplimit: " + of))
}

func mustSecret(of string, secret hybridlimit.Secret) {
	var bad hybridlimit.Violations
	bad.AddSecret("secret", secret)
	if err := bad.Err("httplimit: " + of); err != nil {
		panic(err)
	}
}

// hashBytes are kept of a hash: 2⁶⁴ keys before two are likely to meet.
const hashBytes = 16

// hashed is the key of who. The kind before it keeps it apart from what is
// hashed of another kind, of which somebody else may choose the text.
func hashed(kind string, secret hybridlimit.Secret, salt, who string) string {
	if len(secret) > 0 {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(salt))
		mac.Write([]byte(who))
		return encoded(kind, mac.Sum(nil))
	}
	var room [128]byte // longer ones cost an allocation
	sum := sha256.Sum256(append(append(room[:0], salt...), who...))
	return encoded(kind, sum[:])
}

func encoded(kind string, sum []byte) string {
	const length = (hashBytes*8 + 5) / 6
	var room [32]byte
	b := append(room[:0], kind...)
	b = base64.RawURLEncoding.AppendEncode(b, sum[:hashBytes])
	return string(b[: len(kind)+length : len(kind)+length])
}
