package rls

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/hybridlimit/hybridlimit"
)

// overrides has the last limit of each key whose limit comes with the requests. A limiter asks for it with LimitFor. An
// LRU bounds their number: the next request of a key that was forgotten stores its limit again.
//
// AllowLimit of a limiter is not enough: it cannot be asked together with other limits, and Peek and Refund have no
// such form.
type overrides struct {
	of *lru.Cache[string, hybridlimit.Limit]
}

func newOverrides(most int) *overrides {
	of, _ := lru.New[string, hybridlimit.Limit](most) // the error is for a size below 1
	return &overrides{of}
}

// get returns the limit of a key. ok is false if it was forgotten.
func (o *overrides) get(key string) (limit hybridlimit.Limit, ok bool) { return o.of.Get(key) }

// set stores the limit of a key and reports whether the limiter must ask again.
func (o *overrides) set(key string, limit hybridlimit.Limit) (changed bool) {
	if have, ok := o.of.Get(key); ok && have == limit {
		return false
	}
	o.of.Add(key, limit)
	return true
}
