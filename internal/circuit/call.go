package circuit

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// Call is one call to Redis that Begin permitted. The zero Call is no call.
type Call struct {
	breaker    *Breaker
	generation uint64
	probe      uint64 // the probe's number; 0 for a call that is no probe
	done       func(error)
}

// End reports the duration and the error of a call. Call it exactly once, from any goroutine. A call that took longer
// than SlowCall (see patient) counts as failed with any error: also one that its caller cancelled, since it had waited
// in vain that long. Otherwise [Classify] decides.
//
// End drops the result if the breaker has changed its state since the call began: the result describes an earlier state
// of Redis. A lost probe may still end while the breaker is half-open. Its success closes the breaker: where SlowCall
// is off, a healthy Redis may take longer than patience. Its failure changes nothing, since it was already assumed.
//
// End of the zero Call does nothing.
func (c Call) End(took time.Duration, err error) {
	b := c.breaker
	if b == nil {
		return
	}
	class := Classify(err)
	b.mu.Lock()
	defer b.release()
	if most := b.patient(class, took); most > 0 && took > most && class != Failure {
		class = Failure
		err = slowError{took, b.slowCall()}
	}
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

// extra is the number of round trips that a call may take beside its own: a new connection takes two, and a script that
// Redis does not have yet takes one.
const extra = 3

// patient returns the longest duration of a call that is not slow, and notes the shortest one of a successful call. A
// Redis that is far away, but answers within SlowCall, may take the extra round trips. The shortest duration grows by a
// thousandth of the difference to each other one, so that it follows a Redis that moves away. The caller holds b.mu.
func (b *Breaker) patient(class Class, took time.Duration) time.Duration {
	most := b.slowCall()
	if b.shortest > 0 && b.shortest <= most {
		most += extra * b.shortest
	}
	if class == Success {
		took = max(took, 1) // a clock may be coarse, and 0 stands for no call
		if b.shortest == 0 || took < b.shortest {
			b.shortest = took
		} else {
			b.shortest += (took - b.shortest) / 1024
		}
	}
	return most
}

// slowError is an ErrSlow with its durations. It formats its text on demand.
type slowError struct{ took, limit time.Duration }

func (e slowError) Error() string {
	return fmt.Sprintf("%v: took %v, SlowCall is %v", breaker.ErrSlow, e.took, e.limit)
}

func (e slowError) Unwrap() error { return breaker.ErrSlow }
