package local

import "time"

// fixed is the state of a fixed window: the units used in the window that ends at end. The zero value is an unused key.
// Windows are aligned to Unix time at the limiter's start and counted from there by the monotonic clock, so that
// setting the wall clock makes no window longer or shorter.
//
// When the period changes, the current window keeps its end.
type fixed struct {
	end  time.Duration
	used int64
	owed int64 // debt: charged beyond the window, and counted in the next
}

func (w *fixed) advance(p *plan, now time.Duration) {
	if now < w.end {
		return
	}
	start := p.windowStart(now)
	w.used = 0
	if start <= w.end { // the next window
		w.used = w.owed
	}
	w.end, w.owed = start+p.period, 0
}

func (w *fixed) room(p *plan) int64 { return max(0, p.burst-w.used-w.owed) }

func (w *fixed) take(p *plan, now time.Duration, n int64) (time.Duration, bool) {
	w.advance(p, now)
	if n > w.room(p) {
		return 0, false
	}
	w.used += n
	return 0, true
}

func (w *fixed) decide(p *plan, now time.Duration, n int64) (time.Duration, bool, look) {
	return decideBy(w, p, now, n)
}

func (w *fixed) look(p *plan, now time.Duration, n int64) look {
	w.advance(p, now)
	l := look{room: w.room(p)}
	left := w.end - now
	if w.used > 0 {
		l.reset = left
	}
	if n > l.room {
		l.retry = left
	}
	if w.owed > 0 {
		l.reset = p.windowStart(w.end) + p.period - now
		if n > p.burst-w.owed {
			l.retry = l.reset
		}
	}
	return l
}

func (w *fixed) book(p *plan, now time.Duration, n int64, _ time.Duration) booking {
	return bookNow(w, p, now, n)
}

// charge fills this window, then the next one.
func (w *fixed) charge(p *plan, now time.Duration, n int64) {
	w.advance(p, now)
	here := min(n, max(0, p.burst-w.used))
	w.used += here
	w.owed = max(w.owed, min(w.owed+min(n-here, p.burst), p.burst))
}

func (w *fixed) refund(p *plan, now time.Duration, n int64) float64 {
	w.advance(p, now)
	later := min(n, w.owed)
	w.owed -= later
	here := min(n-later, w.used)
	w.used -= here
	return float64(later + here)
}

func (w *fixed) mark(p *plan, now time.Duration) mark {
	w.advance(p, now)
	return mark{at: now, until: w.end}
}

func (w *fixed) undo(p *plan, now time.Duration, m mark, _ float64, n int64) float64 {
	if w.advance(p, now); w.end != m.until {
		return 0
	}
	return w.refund(p, now, n)
}

// change keeps the current window, if it was used.
func (w *fixed) change(from, _ *plan, now time.Duration) {
	if w.advance(from, now); w.used == 0 && w.owed == 0 {
		*w = fixed{}
	}
}
