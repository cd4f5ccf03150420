package local

import "time"

// fixed is the state of a fixed or calendar window: the units used in the window that ends at end. The zero value is an
// unused key.
// Windows are aligned to Unix time at the limiter's start and counted from there by the monotonic clock, so that
// setting the wall clock makes no window longer or shorter.
//
// When the period changes, the current window keeps its end.
type fixed struct {
	end  time.Duration // of a window that begins with a use: 0 until then
	used int64
	owed int64 // debt: charged beyond the window, and counted in the next
}

func (w *fixed) advance(p *plan, now time.Duration) {
	if now < w.end {
		return
	}
	if p.fromUse {
		w.advanceFromUse(p, now)
		return
	}
	start, end := p.window(now)
	w.used = 0
	if start <= w.end { // the next window
		w.used = w.owed
	}
	w.end, w.owed = end, 0
}

// advanceFromUse ends a window. The next one begins at once if a debt counts in it, and else with a use: see open.
func (w *fixed) advanceFromUse(p *plan, now time.Duration) {
	if next := w.end + p.period; w.owed > 0 && now < next {
		w.end, w.used, w.owed = next, w.owed, 0
		return
	}
	*w = fixed{}
}

// open is called before units are used.
func (w *fixed) open(p *plan, now time.Duration) {
	if w.end == 0 && p.fromUse {
		w.end = now + p.period
	}
}

func (w *fixed) room(p *plan) int64 { return max(0, p.burst-w.used-w.owed) }

func (w *fixed) take(p *plan, now time.Duration, n int64, _ time.Duration) booking {
	if n > w.room(p) {
		return booking{}
	}
	w.open(p, now)
	w.used += n
	return booking{ok: true}
}

func (w *fixed) look(p *plan, now time.Duration, n int64) look {
	l := look{room: w.room(p)}
	left := w.end - now
	if w.used > 0 {
		l.reset = left
	}
	if n > l.room {
		l.retry = left
	}
	if w.owed > 0 {
		_, end := p.window(w.end)
		l.reset = end - now
		if n > p.burst-w.owed {
			l.retry = l.reset
		}
	}
	return l
}

// charge fills this window, then the next one.
func (w *fixed) charge(p *plan, now time.Duration, n int64) {
	w.open(p, now)
	here := min(n, max(0, p.burst-w.used))
	w.used += here
	w.owed = max(w.owed, min(w.owed+min(n-here, p.burst), p.burst))
}

func (w *fixed) refund(p *plan, now time.Duration, n int64) float64 {
	later := min(n, w.owed)
	w.owed -= later
	here := min(n-later, w.used)
	w.used -= here
	if p.fromUse && w.used == 0 && w.owed == 0 { // no unit is used: the next one begins a window
		*w = fixed{}
	}
	return float64(later + here)
}

func (w *fixed) mark(p *plan, now time.Duration) mark { return mark{at: now, until: w.end} }

func (w *fixed) undo(p *plan, now time.Duration, m mark, _ float64, n int64) float64 {
	if w.end != m.until {
		return 0
	}
	return w.refund(p, now, n)
}

// change keeps the current window, if it was used.
func (w *fixed) change(from, _ *plan, now time.Duration) {
	if w.used == 0 && w.owed == 0 {
		*w = fixed{}
	}
}

// sliding is the state of a sliding window. It has two counters: for the current window and for the one before. It
// assumes that the units of the window before came evenly. With f the elapsed part of the current window,
//
//	used = cur + prev·(1 − f)
//
// (Cloudflare, "How we built rate limiting capable of scaling to millions of domains", 2017). It compares integers,
// cross-multiplied in 128 bits. Windows are aligned as in fixed.
type sliding struct {
	start     time.Duration // of the window; may lie before shard time 0
	cur, prev int64
	opened    bool          // start is set
	changed   time.Duration // when the period last changed
}

func (w *sliding) advance(p *plan, now time.Duration) {
	if !w.opened {
		w.start, w.opened = p.windowStart(now), true
	}
	since := now - w.start
	if since < p.period {
		return
	}
	if since-p.period < p.period {
		w.prev = w.cur
	} else {
		w.prev = 0
	}
	w.cur = 0
	w.start += since - since%p.period
}

// estimate returns used, rounded up, since only whole units are taken.
func (w *sliding) estimate(p *plan, now time.Duration) int64 {
	part, rest := mulDiv(w.prev, int64(p.period-(now-w.start)), int64(p.period))
	if rest > 0 {
		part++
	}
	return w.cur + part
}

func (w *sliding) take(p *plan, now time.Duration, n int64, _ time.Duration) booking {
	if n > p.burst-w.estimate(p, now) {
		return booking{}
	}
	w.cur += n
	return booking{ok: true}
}

func (w *sliding) look(p *plan, now time.Duration, n int64) look {
	l := look{room: max(0, p.burst-w.estimate(p, now))}
	if n > l.room {
		l.retry = w.wait(p, now, n)
	}
	left := p.period - (now - w.start)
	switch {
	case w.cur > 0:
		l.reset = left + p.period
	case w.prev > 0:
		l.reset = left
	}
	return l
}

// wait solves cur + prev·(1 − f) + n ≤ Rate for f: in this window, or in the next, where cur becomes prev. The estimate
// is equal on both sides of the border, and time never increases it.
func (w *sliding) wait(p *plan, now time.Duration, n int64) time.Duration {
	elapsed, left := now-w.start, p.period-(now-w.start)
	if free := p.burst - n - w.cur; free > 0 {
		if f := decayed(p, w.prev, free); f < p.period {
			return f - elapsed
		}
	}
	return left + decayed(p, w.cur, p.burst-n)
}

// decayed returns the first ns of a window at which the units of the window before count at most free. It returns the
// period if that is so only at the end.
func decayed(p *plan, units, free int64) time.Duration {
	if units <= free {
		return 0
	}
	part, _ := mulDiv(free, int64(p.period), units)
	return p.period - time.Duration(part)
}

func (w *sliding) charge(p *plan, now time.Duration, n int64) {
	w.cur += max(0, min(n, 2*p.burst-w.estimate(p, now)))
}

// refund first gives back the units that count longest.
func (w *sliding) refund(p *plan, now time.Duration, n int64) float64 {
	here := min(n, w.cur)
	w.cur -= here
	before := min(n-here, w.prev)
	w.prev -= before
	return float64(here + before)
}

func (w *sliding) mark(p *plan, now time.Duration) mark { return mark{at: now} }

// undo takes the units out of the counter that has them.
func (w *sliding) undo(p *plan, now time.Duration, m mark, _ float64, n int64) float64 {
	var from *int64
	switch since := m.at - w.start; {
	case m.at < w.changed: // the counter is unknown
		return 0
	case since >= 0:
		from = &w.cur
	case since >= -p.period:
		from = &w.prev
	default:
		return 0
	}
	n = min(n, *from)
	*from -= n
	return float64(n)
}

// change keeps the counters if the period stays. With a new period, the estimate becomes the count of the current
// window.
func (w *sliding) change(from, to *plan, now time.Duration) {
	if from.period == to.period {
		return
	}
	*w = sliding{
		start: to.windowStart(now), opened: true,
		cur: w.estimate(from, now), changed: now,
	}
}
