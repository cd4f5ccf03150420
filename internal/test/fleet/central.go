package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// central is one limiter without a network. It uses the Go arithmetic that the script is compared with. Time is in
// whole µs, as in Redis.
type central struct {
	limit algo.Limit
	state algo.State
	log   *algo.LogWindow // for a sliding log, instead of limit and state
	past  []algo.Entry
	ask   [1]int64
}

func newCentral(l hybridlimit.Limit) *central {
	if algo.KindOf(l.Algorithm) == algo.KindLog {
		log := algo.LogOf(l)
		return &central{log: &log}
	}
	return &central{limit: algo.LimitOf(l)}
}

// take asks for n units at a time in ns since 1970.
func (c *central) take(at, n int64) (ok bool, delay time.Duration) {
	c.ask[0] = n
	op, now := algo.Op{Asks: c.ask[:]}, at/1000
	var ans algo.Answer
	if c.log != nil {
		c.past, ans, _ = c.log.Apply(c.past, op, now)
		return ans.Granted == n, 0
	}
	state, ans, dirty := c.limit.Apply(c.state, op, now)
	if dirty {
		c.state = state
	}
	return ans.Granted == n, time.Duration(ans.Delay) * time.Microsecond
}

// shared is one central limiter per key, without a network. It serves [CentralExact].
type shared struct {
	w        *world
	mu       sync.Mutex
	limit    hybridlimit.Limit
	limiters map[string]*central
}

func (c *shared) change(l hybridlimit.Limit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = l
	for _, b := range c.limiters {
		b.limit = algo.LimitOf(l)
	}
}

func (c *shared) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.limiters[key]
	if b == nil {
		b = newCentral(c.limit)
		c.limiters[key] = b
	}
	ok, delay := b.take(c.w.start.UnixNano()+c.w.since(), n)
	return hybridlimit.Result{Allowed: ok, Delay: delay, Source: hybridlimit.SourceLocal}, nil
}
