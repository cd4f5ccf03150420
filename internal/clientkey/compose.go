package clientkey

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// The keys that do not depend on the client.
const (
	Everyone    = "*"
	RoutePrefix = "route:"
	Unmatched   = "unmatched" // no route: each pattern and each full method has a slash
)

// AppendPart adds a part to a key that is joined of several. first is true for the
// first part. Different lists of parts give different keys.
func AppendPart(b *strings.Builder, first bool, part string) {
	const separator = '|'
	if !first {
		b.WriteByte(separator)
	}
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

// Must panics if an argument of the function of is not ok. of has its package and
// name. That is a mistake in the program.
func Must(of string, ok bool, argument string, value any, problem string) {
	if ok {
		return
	}
	var bad hybridlimit.Violations
	bad.Add(argument, value, problem)
	panic(bad.Err(of))
}

// MustSecret panics if the secret has a wrong length.
func MustSecret(of string, secret hybridlimit.Secret) {
	var bad hybridlimit.Violations
	bad.AddSecret("secret", secret)
	if err := bad.Err(of); err != nil {
		panic(err)
	}
}

// MustKeys panics if there are no key functions, or if one is nil.
func MustKeys[F any](of string, keys []F, isNil func(F) bool) {
	Must(of, len(keys) > 0, "keys", "none", "must be at least one")
	for i, key := range keys {
		Must(of, !isNil(key), fmt.Sprintf("keys[%d]", i), nil, "is required")
	}
}
