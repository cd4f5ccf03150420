package circuit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// Breaker decides whether Redis is asked. Make one with New, for one Redis. It
// is safe for concurrent use and must not be copied.
type Breaker struct {
	cfg    breaker.Config
	random func(n int64) int64 // uniform in [0, n); called with mu held
	state  atomic.Uint32       // a State; written with mu held

	mu     sync.Mutex // comes before gobreaker's own, which is held only while it counts
	engine *gobreaker.TwoStepCircuitBreaker[struct{}]
	noted  gobreaker.State // what the engine last said that it changed to

	// generation moves with every change of state. What a call that began in
	// another generation has to say is out of date.
	generation uint64
	// failures is how many calls failed in a row. gobreaker's own count
	// forgets what is older than its window, so a process that calls Redis
	// once in five seconds, and fails each time, would never see three.
	failures int
	retryAt  time.Time // Open: when the first Begin may be a probe
	probe    probe     // HalfOpen: the one that is out
	probes   uint64    // how many there have been: their identities

	untold  []breaker.Change
	telling bool
}

// probe is the call that a half-open breaker waits for.
type probe struct {
	id    uint64 // 0: none is out
	began time.Time
	done  func(error)
}

// New makes a closed Breaker. The error lists everything that is wrong with
// cfg and is a *hybridlimit.InvalidError.
func New(cfg breaker.Config) (*Breaker, error) {
	if err := Violations(cfg, "Config.").Err("breaker"); err != nil {
		return nil, err
	}
	b := &Breaker{cfg: withDefaults(cfg), random: rand.Int64N}
	b.engine = gobreaker.NewTwoStepCircuitBreaker[struct{}](b.settings())
	return b, nil
}

// State is what the breaker lets through now: Closed means that decisions may
// rely on Redis. It is one atomic load. An Open breaker whose time is over
// stays Open until somebody's Begin makes it HalfOpen.
func (b *Breaker) State() breaker.State { return breaker.State(b.state.Load()) }

// Begin asks whether to call Redis now. True: call, and then call End exactly
// once. False: do not call; the Call is empty and needs no End.
//
// While the breaker is half-open, one call is let through at a time, the
// probe. A probe whose End has not come after max(OpenFor, 10·SlowCall) is
// taken for lost, and the next Begin becomes the probe in its place.
//
// It allocates once when it returns true (48 bytes: gobreaker hands out a
// closure), which is little next to the message to Redis that follows, and
// never when it returns false.
func (b *Breaker) Begin() (Call, bool) {
	b.mu.Lock()
	defer b.release()

	var now time.Time // read only where it is needed
	switch b.State() {
	case breaker.Open:
		now = time.Now()
		if now.Before(b.retryAt) {
			return Call{}, false
		}
	case breaker.HalfOpen:
		now = time.Now()
		if b.probe.id != 0 {
			if now.Sub(b.probe.began) < patience(b.cfg) {
				return Call{}, false
			}
			b.endProbe(errIgnored)
		}
	}
	done, err := b.engine.Allow()
	if err != nil {
		// Not reached: gobreaker's open time (see settings) ends before retryAt,
		// and its only place for a probe is free here.
		return Call{}, false
	}
	b.settle(nil)

	c := Call{breaker: b, generation: b.generation, done: done}
	if b.State() == breaker.HalfOpen {
		b.probes++
		b.probe = probe{id: b.probes, began: now, done: done}
		c.probe = b.probes
	}
	return c, true
}

// RetryIn is how long to wait before a Begin may be let through: 0 when it may
// now; while a probe is out, the time after which it is taken for lost, though
// it may of course end before that.
func (b *Breaker) RetryIn() time.Duration {
	if b.State() == breaker.Closed {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.State() == breaker.Open:
		return max(0, time.Until(b.retryAt))
	case b.probe.id != 0: // so HalfOpen
		return max(0, patience(b.cfg)-time.Since(b.probe.began))
	}
	return 0
}
