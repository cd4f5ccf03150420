package keys

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Common is the fast path. It returns false when the slow path must decide; res has no meaning then. Its decisions are
// counted later, when the budget is taken back: see tell.Counts.Drained. A valid budget implies that the limiter is
// open, that the entry's plan is current, and that no switch decides.
//
// The answer is written in place, field by field, before the atomic operation on the budget. That operation waits
// until earlier writes have reached the cache. The rejected alternative copies the answer in pieces larger than the
// writes. Such a copy waits for the cache too, and took as long as the rest of the call (BenchmarkAllow).
func (t *Terms) Common(e *Entry, r *account.Plan, n int64, res *hybridlimit.Result) bool {
	if n > r.Most || n > account.MaxUnits {
		return false
	}
	epoch := t.Clock.Epoch()
	res.Limit, res.Policy = r.Shown, t.Name
	for {
		w := e.Word.Load()
		if account.Over(w, epoch) {
			return false
		}
		units, kind := account.UnitsOf(w), account.KindOf(w)
		next := w - uint64(n)
		switch {
		case kind == account.DenyBudget:
			if units+n > account.MaxUnits || n > 1 && t.Penalties != nil { // a penalty counts calls
				return false
			}
			next = w + uint64(n) // a deny budget counts the denied units
			res.Allowed, res.Granted, res.Remaining, res.Source = false, 0, 0, hybridlimit.SourceDenyCache
			res.RetryAfter = t.RetryFromWord(e, r, n)
			if r.Window.Period == 0 { // resetAfter, inlined
				left := e.units(r, t.Clock)
				if left >= float64(n) { // see Fill
					left = float64(n - 1)
				}
				res.ResetAfter = r.Refilled(left)
			} else {
				res.ResetAfter = t.ResetAfter(r, min(e.UnitsLeft(r), n-1), e.Ends.Load())
			}
			if t.Control.Shadow.Load() {
				*res = t.Control.Shadowed(*res, n)
			}
		case units < n:
			return false
		default:
			left := min(e.units(r, t.Clock)+float64(units), float64(r.Burst)) - float64(n)
			res.Allowed, res.Granted, res.Remaining, res.Source = true, n, max(0, int64(left+floatSlack)), account.Sources[kind]
			res.Shadowed, res.RetryAfter = false, 0
			if r.Window.Period == 0 { // resetAfter, inlined
				res.ResetAfter = r.Refilled(left)
			} else {
				res.ResetAfter = t.ResetAfter(r, int64(left), e.Ends.Load())
			}
		}
		if !e.Word.CompareAndSwap(w, next) {
			continue
		}
		if n > 1 {
			t.Count.Words[kind].More.Add(n - 1)
		}
		return true
	}
}

// RetryFromWord returns RetryAfter, as of the last tick. The rough clock is behind, in general by up to a tick, so the
// result is up to a tick too long. It is never too short, so that a caller who waits for it is not denied again.
func (t *Terms) RetryFromWord(e *Entry, r *account.Plan, n int64) time.Duration {
	until := e.shut.Load()
	switch {
	case n == 1 || e.Ends.Load() != 0 && !r.Window.Sliding:
	case until&1 == 0 && r.Window.Period == 0:
		until += ((n-1)*r.Bucket.Unit + r.Bucket.Refill - 1) / r.Bucket.Refill * 1000
	default: // several units may take longer than the turn of this process, or than one unit of a window
		e.Lock()
		until = max(until, e.Account.RetryAt(&account.Conditions{Bucket: r.Bucket, Window: r.Window, Floor: r.Floor}, n))
		e.Unlock()
	}
	return max(time.Microsecond, time.Duration(until-t.Clock.Rough()))
}
