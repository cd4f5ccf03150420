package circuit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// Breaker decides whether Redis is called. Make one with New for each Redis. It
// is safe for concurrent use and must not be copied.
type Breaker struct {
	cfg    breaker.Config
	random func(n int64) int64  // uniform in [0, n); called with mu held
	state  atomic.Uint32        // a State; written with mu held
	queue  func() time.Duration // see Queueing

	mu     sync.Mutex // taken before gobreaker's own, which is held only while it counts
	engine *gobreaker.TwoStepCircuitBreaker[struct{}]
	noted  gobreaker.State // the engine's state after its last change

	// generation grows with every change of state. The result of a call from an earlier generation is out of date.
	generation uint64
	// failures is the number of failed calls in a row. gobreaker's own count drops failures older than its window: a
	// process that calls Redis once in five seconds, and fails each time, would never count three.
	failures int
	shortest time.Duration // of a successful call: see patient; 0: there was none
	retryAt  time.Time     // Open: from then on, a Begin may be the probe
	probe    probe         // HalfOpen: the probe in flight
	probes   uint64        // the number of probes so far, which numbers them

	untold  []breaker.Change // queued for OnChange
	telling bool             // a release is delivering
}

// probe is the call on which a half-open breaker waits.
type probe struct {
	id    uint64 // 0: no probe is in flight
	began time.Time
	done  func(error)
}

// New returns a closed Breaker. Its error is a *hybridlimit.InvalidError of
// package breaker that lists every invalid field of cfg.
func New(cfg breaker.Config) (*Breaker, error) {
	if err := Violations(cfg, "Config.").Err("breaker"); err != nil {
		return nil, err
	}
	b := &Breaker{cfg: withDefaults(cfg), random: rand.Int64N}
	b.engine = gobreaker.NewTwoStepCircuitBreaker[struct{}](b.settings())
	return b, nil
}

// State returns the current state. Closed means that decisions may rely on Redis. It costs one atomic load. An Open
// breaker whose time is over stays Open until the next Begin makes it HalfOpen.
func (b *Breaker) State() breaker.State { return breaker.State(b.state.Load()) }

// Begin reports whether to call Redis now. True: call Redis, then End exactly
// once. False: do not call Redis. The Call is then zero and needs no End.
//
// A half-open breaker permits one call at a time, the probe. A probe without an End after max(OpenFor, 10·SlowCall), or
// the time of Queueing, counts as lost, and the next Begin becomes the probe in its place.
//
// Begin allocates once when it returns true: 48 bytes, for a closure of gobreaker. That is little beside the message to
// Redis that follows. It allocates nothing when it returns false.
func (b *Breaker) Begin() (Call, bool) {
	b.mu.Lock()
	defer b.release()

	var now time.Time // zero while Closed, which needs no clock
	switch b.State() {
	case breaker.Open:
		now = time.Now()
		if now.Before(b.retryAt) {
			return Call{}, false
		}
	case breaker.HalfOpen:
		now = time.Now()
		if b.probe.id != 0 {
			if now.Sub(b.probe.began) < b.patience() {
				return Call{}, false
			}
			b.endProbe(errIgnored)
		}
	}
	done, err := b.engine.Allow()
	if err != nil {
		// Not reached: gobreaker's open time (see settings) ends before
		// retryAt, and its only place for a probe is free here.
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

// Queueing sets a function that tells for how long a call may wait in the queue of a healthy Redis. A call then counts as
// slow after max(SlowCall, ¾ of it), and the open time is at least as long, on average. A large fleet needs it: with a
// shorter open time, the probes of its processes alone are more than Redis can do. Call it before all other methods.
func (b *Breaker) Queueing(of func() time.Duration) { b.queue = of }

func (b *Breaker) queueing() time.Duration {
	if b.queue == nil {
		return 0
	}
	return b.queue()
}

// slowCall is Config.SlowCall, with the queue. Negative: slow calls are not counted.
func (b *Breaker) slowCall() time.Duration {
	if b.cfg.SlowCall < 0 {
		return b.cfg.SlowCall
	}
	return max(b.cfg.SlowCall, b.queueing()*3/4)
}

// openFor is Config.OpenFor, with the queue.
func (b *Breaker) openFor() time.Duration { return max(b.cfg.OpenFor, b.queueing()) }

// patience returns the time after which a probe without an End counts as lost and another may take its place:
// max(OpenFor, 10·SlowCall), and the queue. A failed probe is followed by another after OpenFor on average, so Redis gets
// no more probes than from an open breaker. A probe that has taken ten times SlowCall can only fail.
func (b *Breaker) patience() time.Duration { return max(b.openFor(), 10*max(b.cfg.SlowCall, 0)) }

// RetryNow lets the next Begin of an open breaker be the probe, whatever its time.
func (b *Breaker) RetryNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.State() == breaker.Open {
		b.retryAt = time.Now()
	}
}

// RetryIn returns the time until a Begin may return true: 0 when it may now. While a probe is in flight, it is the time
// until that probe counts as lost. The probe may end earlier.
func (b *Breaker) RetryIn() time.Duration {
	if b.State() == breaker.Closed {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.State() == breaker.Open:
		return max(0, time.Until(b.retryAt))
	case b.probe.id != 0: // HalfOpen
		return max(0, b.patience()-time.Since(b.probe.began))
	}
	return 0
}
