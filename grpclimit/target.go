package grpclimit

import (
	"sync"
	"time"
)

// target is the state of one server's limits.
type target struct {
	mu    sync.Mutex
	until time.Time // no call is sent before
}

// blocked returns for how long the server accepts no call.
func (t *target) blocked(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until.Sub(now)
}

// block lets no call be sent before a time.
func (t *target) block(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.until) {
		t.until = until
	}
}
