package fleet

import (
	"context"
	"sync"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// central is one bucket without a network: the arithmetic that the script is
// checked against. Time is whole µs, as Redis's is.
type central struct {
	bucket algo.Bucket
	state  algo.State
	ask    [1]int64
}

// epoch keeps the state's birth from being 0, which would mean that there is
// none.
const epoch = 1_000_000 // µs

func (c *central) take(at, n int64) bool {
	c.ask[0] = n
	state, ans, dirty := c.bucket.Apply(c.state, algo.Op{Asks: c.ask[:]}, epoch+at/1000)
	if dirty {
		c.state = state
	}
	return ans.Granted == n
}

// shared is one central bucket without a network, for [CentralExact].
type shared struct {
	w       *world
	mu      sync.Mutex
	buckets map[string]*central
}

func newShared(w *world) *shared { return &shared{w: w, buckets: map[string]*central{}} }

func (*shared) mayWait() bool { return false }

func (c *shared) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.buckets[key]
	if b == nil {
		b = &central{bucket: c.w.bucket}
		c.buckets[key] = b
	}
	return hybridlimit.Result{Allowed: b.take(c.w.since(), n), Source: hybridlimit.SourceLocal}, nil
}
