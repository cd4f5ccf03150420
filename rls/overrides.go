package rls

import (
	"sync"

	"github.com/hybridlimit/hybridlimit"
)

// overrides has the last limit of each key whose limit comes with the requests. A
// limiter asks for it with LimitFor.
//
// AllowLimit of a limiter is not enough: it cannot be asked together with other limits,
// and Peek and Refund have no such form.
type overrides struct {
	mu   sync.RWMutex
	most int
	of   map[string]hybridlimit.Limit
}

func newOverrides(most int) *overrides {
	return &overrides{most: most, of: map[string]hybridlimit.Limit{}}
}

// get returns the limit of a key. ok is false if it was forgotten.
func (o *overrides) get(key string) (limit hybridlimit.Limit, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	limit, ok = o.of[key]
	return limit, ok
}

// set stores the limit of a key and reports whether the limiter must ask again. If there
// are too many keys, it forgets some. Their next request stores them again.
func (o *overrides) set(key string, limit hybridlimit.Limit) (changed bool) {
	if have, ok := o.get(key); ok && have == limit {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.of[key]; !ok && len(o.of) >= o.most {
		drop := o.most/64 + 1
		for old := range o.of {
			delete(o.of, old)
			if drop--; drop == 0 {
				break
			}
		}
	}
	o.of[key] = limit
	return true
}
