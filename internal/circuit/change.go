package circuit

import "github.com/hybridlimit/hybridlimit/breaker"

// note queues a change for delivery. It is called with b.mu held.
func (b *Breaker) note(c breaker.Change) {
	if b.cfg.OnChange != nil {
		b.untold = append(b.untold, c)
	}
}

// release unlocks b.mu and delivers what was noted, unless another call of
// release, in this goroutine or another, is at it and will find it.
func (b *Breaker) release() {
	if len(b.untold) == 0 || b.telling {
		b.mu.Unlock()
		return
	}
	b.tell()
}

// tell is called with b.mu held and gives it back. The defers keep the
// bookkeeping straight when OnChange panics or calls runtime.Goexit: what is
// still untold waits for the next release.
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
	b.untold = nil // let go of the causes
}

func (b *Breaker) tellOne(c breaker.Change) {
	b.mu.Unlock()
	defer b.mu.Lock()
	b.cfg.OnChange(c)
}
