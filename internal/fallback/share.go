package fallback

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Slack is the largest rounding error of a level, in units.
const Slack = 1e-6

// share is the share of a key. Its zero value is full.
type share struct {
	bucket *rate.Limiter
	counts counts
	size   Size // the last one, so that a change is noticed
}

// at returns a time for rate.Limiter. Only differences of these times matter.
func at(now int64) time.Time { return time.Unix(0, now) }

// fit takes over a size. The units that are left stay, as far as the new burst permits. A share of another form, of a
// window whose share falls below one unit, begins with the same part of its burst.
func (h *share) fit(s *Size, now int64) {
	switch {
	case h.size.Burst == 0: // new
		h.renew(s, now)
	case s.counters() != h.size.counters() || s.counters() && s.Period != h.size.Period:
		part := h.look(&h.size, now) / float64(h.size.Burst)
		h.renew(s, now)
		h.lower(part*float64(s.Burst), now)
	case !s.counters() && (s.Burst != h.size.Burst || s.PerNs != h.size.PerNs):
		h.bucket.SetLimitAt(at(now), perSecond(s))
		h.bucket.SetBurstAt(at(now), whole(s.Burst))
	}
	h.size = *s
	if s.counters() {
		h.counts.enter(s, now)
	}
}

func perSecond(s *Size) rate.Limit { return rate.Limit(s.PerNs * float64(time.Second)) }

func (h *share) renew(s *Size, now int64) {
	*h = share{size: *s}
	if s.counters() {
		h.counts.enter(s, now)
	} else {
		h.bucket = rate.NewLimiter(perSecond(s), whole(s.Burst))
	}
}

// left returns the units left. Call fit before it, and before each method below.
func (h *share) left(now int64) float64 {
	if h.size.counters() {
		return float64(h.size.Burst) - h.counts.used(&h.size, now)
	}
	return h.bucket.TokensAt(at(now))
}

// look returns the units that are left after fit, and does not change the share.
func (h *share) look(s *Size, now int64) float64 {
	one := *h
	switch {
	case s.counters() != h.size.counters():
		return h.look(&h.size, now) / float64(h.size.Burst) * float64(s.Burst)
	case s.counters():
		one.size = *s
		one.counts.enter(s, now)
	}
	return min(one.left(now), float64(s.Burst))
}

func (h *share) take(n, now int64) bool {
	if float64(n+h.size.Floor) > h.left(now)+Slack {
		return false
	}
	if h.size.counters() {
		h.counts.now += n
		return true
	}
	if !h.bucket.AllowN(at(now), whole(n)) {
		h.bucket.ReserveN(at(now), whole(n)) // a rounding error is missing
	}
	return true
}

// whole returns n units as rate.Limiter takes them, on a machine of 32 bits too.
func whole(n int64) int { return int(max(-math.MaxInt, min(n, math.MaxInt))) }

// put returns units. A negative number of tokens is taken for that: see TestPutIsExact.
func (h *share) put(n, now int64) {
	if h.size.counters() {
		h.counts.now = max(0, h.counts.now-n)
		return
	}
	h.bucket.AllowN(at(now), whole(-n))
}

// lower lowers the share to a level. A bucket may have a part of a unit, so it becomes empty at the time at which it
// would have to be empty.
func (h *share) lower(level float64, now int64) {
	switch missing := h.left(now) - max(0, level); {
	case missing <= Slack:
	case h.size.counters():
		h.counts.now += int64(math.Ceil(missing - Slack))
	default:
		empty := at(now - int64(max(0, level)/h.size.PerNs))
		h.bucket = rate.NewLimiter(perSecond(&h.size), whole(h.size.Burst))
		h.bucket.AllowN(empty, whole(h.size.Burst))
	}
}

// debit takes n units that were used without asking.
func (h *share) debit(n, now int64) {
	if h.size.counters() {
		h.lower(h.left(now)-float64(n), now)
		return
	}
	most := int64(min(h.left(now)+float64(h.size.Burst), math.MaxInt64/2)) // one burst of debt
	for n = min(n, most); n > 0; n -= h.size.Burst {
		h.bucket.ReserveN(at(now), whole(min(n, h.size.Burst))) // it has no larger reservations
	}
}

// fullAt returns the time (ns) at which the share is full again, if no other call comes.
func (h *share) fullAt(now int64) int64 {
	if h.size.counters() {
		return h.counts.emptyAt(&h.size, now)
	}
	lacks := float64(h.size.Burst) - h.bucket.TokensAt(at(now))
	if lacks <= 0 {
		return now
	}
	return now + int64(min(math.Ceil(lacks/h.size.PerNs), 1<<61))
}

// wait returns the ns until take(n) succeeds, if no other call comes; negative: never.
func (h *share) wait(n, now int64) int64 {
	most := h.size.Burst - h.size.Floor
	switch {
	case n > most:
		return -1
	case h.size.counters():
		return h.counts.wait(&h.size, most-n, now)
	}
	lacks := float64(n+h.size.Floor) - h.bucket.TokensAt(at(now))
	return int64(min(max(0, lacks)/h.size.PerNs, 1<<61)) + 1
}
