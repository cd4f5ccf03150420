package clientaddr

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// Must panics if an argument of the function of is not ok. of has its package and
// name. That is a mistake in the program.
func Must(of string, ok bool, argument string, value any, problem string) {
	if ok {
		return
	}
	var bad adapter.Violations
	bad.Add(argument, value, problem)
	panic(bad.Err(of))
}

// MustSecret panics if the secret has a wrong length.
func MustSecret(of string, secret hybridlimit.Secret) {
	var bad adapter.Violations
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
