package clientkey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/textproto"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// maxUser is the longest user, in bytes, that is in a key as text. It leaves room for other parts of a joint key.
const maxUser = 256

// User returns the key of a user, that is of any name that an authentication has checked. It returns "" for the user
// "". The key has the name as it is. So operators, LimitFor and limit files can name it.
//
// With a secret, the key has an HMAC-SHA-256 of the name instead, cut to 128 bits: set one if no reader of Redis, of a
// debug page or of a limit file may see names. A name of more than 256 bytes is hashed in any case. The secret is the
// one that httplimit.User has; its length is not checked here.
func User(secret hybridlimit.Secret, name string) string {
	switch {
	case name == "":
		return ""
	case secret == "" && len(name) <= maxUser:
		return userKind + name
	}
	return hashed(hiddenKind, secret, "", name)
}

// APIKey returns the key of an API key in a header of this name, as httplimit.APIKey
// does. The key has a SHA-256 of the header's canonical name and of the value, cut to
// 128 bits, or an HMAC with the secret. A value in another header has another key.
func APIKey(secret hybridlimit.Secret, header, value string) string {
	return hashed(apiKeyKind, secret, textproto.CanonicalMIMEHeaderKey(header), value)
}

// Bearer returns the key of a bearer token, as httplimit.Bearer does: with a hash of the token, as in APIKey.
func Bearer(secret hybridlimit.Secret, token string) string {
	return hashed(bearerKind, secret, "", token)
}

// Authorization returns the key of the value of an Authorization header: that of Bearer for the token in it. All values
// that are not a bearer token have one key, which differs from every token's.
func Authorization(secret hybridlimit.Secret, credentials string) string {
	token, ok := bearerToken(credentials)
	if !ok {
		return bearerKind + "malformed" // shorter than any hash
	}
	return Bearer(secret, token)
}

// bearerToken reads credentials of RFC 6750, section 2.1: the scheme, in upper or lower case, and one word. It accepts
// any number of spaces and tabs between the two, because code that checks tokens does so too.
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

// hashBytes is the length of the hash that is kept: a collision is likely after 2⁶⁴ keys.
const hashBytes = 16

// hashed returns the key for the text who, hashed together with the name of its header; "": none.
func hashed(kind string, secret hybridlimit.Secret, header, who string) string {
	if secret != "" {
		mac := hmac.New(sha256.New, []byte(secret))
		if header != "" {
			mac.Write([]byte(header))
			mac.Write([]byte{0})
		}
		mac.Write([]byte(who))
		return encoded(kind, mac.Sum(nil))
	}
	var room [128]byte // a longer text costs an allocation
	text := room[:0]
	if header != "" {
		text = append(append(text, header...), 0)
	}
	sum := sha256.Sum256(append(text, who...))
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
