package shed

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

const (
	// growth is the largest limit as a multiple of the calls in flight, as in failsafe-go by default. It leaves room
	// for bursts.
	growth = 5
	// judged is the number of ticks between two judgements of health.
	judged = int(time.Second / tick)
	// slowPart is the divisor of the part of slow calls at which a process is unwell: one in ten.
	slowPart = 10
)

// health is the absolute bound that failsafe-go lacks: while too many calls are slower than Config.Healthy, the limit
// does not rise above its last healthy value.
type health struct {
	bound          time.Duration
	finished, slow atomic.Int64 // calls since the last judgement
	ceiling        atomic.Int64 // of the limit while unwell; else math.MaxInt64

	healthy int // the limit at the last judgement that was good; of judge
	ticks   int // since the last judgement; of judge
}

func newHealth(bound time.Duration, limit int) *health {
	h := &health{bound: bound, healthy: limit}
	h.ceiling.Store(math.MaxInt64)
	return h
}

// note counts a call that has ended.
func (h *health) note(took time.Duration) {
	h.finished.Add(1)
	if took > h.bound {
		h.slow.Add(1)
	}
}

// judge is called once per tick, by one goroutine. Without a call that ended the last judgement stands: the calls may
// hang. When the process is well again, the limiter begins anew: else the limit falls in each slow second of a
// dependency that flaps, and durations that have passed hold it down in the others.
func (h *health) judge(limiter adaptivelimiter.AdaptiveLimiter[any]) {
	if h.ticks++; h.ticks < judged || h.finished.Load() == 0 {
		return
	}
	h.ticks = 0
	finished, slow := h.finished.Swap(0), h.slow.Swap(0)
	if slow*slowPart > finished {
		h.ceiling.Store(int64(h.healthy))
		return
	}
	if h.ceiling.Swap(math.MaxInt64) != math.MaxInt64 {
		limiter.Reset()
	}
	h.healthy = limiter.Limit()
}

// most returns the largest limit beside this number of calls in flight. The limiter calls it under its lock.
func (h *health) most(inFlight int) float64 {
	return min(growth*float64(inFlight), float64(h.ceiling.Load()))
}
