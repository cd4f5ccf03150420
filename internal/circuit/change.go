package circuit

import "github.com/hybridlimit/hybridlimit/breaker"

// note queues a change for delivery. The caller holds b.mu.
func (b *Breaker) note(c breaker.Change) {
	if b.cfg.OnChange != nil {
		b.untold = append(b.untold, c)
	}
}

// release unlocks b.mu and delivers the queued changes. If another call of release is delivering, in this goroutine or
// another, that call delivers them. Waiting for it instead would amount to a lock held during a callback.
func (b *Breaker) release() {
	if len(b.untold) == 0 || b.telling {
		b.mu.Unlock()
		return
	}
	b.tell()
}

// tell delivers the queued changes. The caller holds b.mu, and tell unlocks it. The defers restore the lock and the
// flag when OnChange panics or calls runtime.Goexit. The next release then delivers the rest of the queue.
func (b *Breaker) tell() {
	b.telling = true
	defer func() {
		b.telling = false
		b.mu.Unlock()
	}()
	for len(b.untold) > 0 {
		c := b.untold[0]
		b.untold = b.untold[1:]
		b.tellOne(c)
	}
	b.untold = nil // frees the causes
}

func (b *Breaker) tellOne(c breaker.Change) {
	b.mu.Unlock()
	defer b.mu.Lock()
	b.cfg.OnChange(c)
}
