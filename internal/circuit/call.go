package circuit

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// Call is one call to Redis that Begin let through. The zero Call is none.
type Call struct {
	breaker    *Breaker
	generation uint64
	probe      uint64 // its identity if it is a probe, else 0
	done       func(error)
}

// End reports how the call went: how long it took and what it returned. Call
// it exactly once, from any goroutine. A call that took longer than SlowCall
// failed, whatever it returned: that includes one that its caller cancelled,
// for it had waited that long in vain. Otherwise [Classify] decides.
//
// What a call has to say is dropped if the breaker has changed its state since
// the call began: it is about a Redis of the past. A probe that was taken for
// lost, and ends while the breaker is still half-open, can close it but not
// open it: its success is news (and where SlowCall is off, a Redis may take
// longer than our patience and be well), its failure is what we had assumed.
//
// End of the zero Call does nothing.
func (c Call) End(took time.Duration, err error) {
	b := c.breaker
	if b == nil {
		return
	}
	class := Classify(err)
	if b.cfg.SlowCall > 0 && took > b.cfg.SlowCall && class != Failure {
		class = Failure
		err = slowError{took, b.cfg.SlowCall}
	}

	b.mu.Lock()
	defer b.release()
	if c.generation != b.generation {
		return
	}
	if c.probe != b.probe.id && class != Success {
		return
	}
	switch class {
	case Success:
		b.failures = 0
		c.done(nil)
	case Failure:
		b.failures++
		c.done(errFailed)
	case Ignored:
		if c.probe != 0 {
			b.endProbe(errIgnored)
		} else {
			c.done(errIgnored)
		}
	}
	b.settle(err)
}

// slowError is made into text only if somebody wants to read it.
type slowError struct{ took, limit time.Duration }

func (e slowError) Error() string {
	return fmt.Sprintf("%v: took %v, SlowCall is %v", breaker.ErrSlow, e.took, e.limit)
}

func (e slowError) Unwrap() error { return breaker.ErrSlow }
