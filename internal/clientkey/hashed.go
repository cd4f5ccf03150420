package clientkey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// Salt returns the salt of APIKey for a header with this canonical name. It gives
// the same value in two headers two keys.
func Salt(header string) string { return header + "\x00" }

// APIKey returns the key of the value of a header with this Salt.
func APIKey(salt string, secret hybridlimit.Secret, value string) string {
	return hashed("apikey:", secret, salt, value)
}

// Bearer returns the key of the credentials in an Authorization header. All that
// are not a bearer token have one key.
func Bearer(secret hybridlimit.Secret, credentials string) string {
	token, ok := bearerToken(credentials)
	if !ok {
		return "bearer:malformed" // shorter than any hash
	}
	return hashed("bearer:", secret, "", token)
}

// Subject returns the key of a subject, or "" for the subject "".
func Subject(secret hybridlimit.Secret, who string) string {
	if who == "" {
		return ""
	}
	return hashed("subject:", secret, "", who)
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
