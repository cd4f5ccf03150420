package httplimit

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// site is the state of one server's limits.
type site struct {
	mu      sync.Mutex
	until   time.Time // no request is sent before
	refused uint64    // the number of the last request whose refusal named a time
	sent    uint64    // the number of requests so far, including waiting ones
	paused  uint64    // sent at the start of the last pause
	pauses  int       // pauses in a row
	windows []*window // at most maxWindows
}

// maxWindows bounds the policies of a site: a server may send any number.
const maxWindows = 8

// window is the state of one policy, from the last response that described it.
type window struct {
	from              *source // nil: RateLimit
	policy, partition string
	heard             uint64        // the number of the request that this response answers
	quota             int64         // q; without q, the most units seen
	each              time.Duration // time per unit at the policy's rate, w/q; 0: unknown
	left              int64         // r less the requests counted since
	ends              time.Time     // the end of t
	next              time.Time     // the earliest time of the next spread request
}

// blocked returns for how long the server accepts no request.
func (s *site) blocked(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until.Sub(now)
}

// slot is the place of a request in the site's windows.
type slot struct {
	seq  uint64 // the request's number
	wait time.Duration
	of   [maxWindows]taken
	n    int
}

// taken is a request's part of one window.
type taken struct {
	w    *window
	unit bool          // it took one of the units left
	step time.Duration // the delay that it caused for later requests
}

// slot counts a request and returns its wait. A request with a wait above most does not wait for its slot: it takes a
// unit, but delays no other request.
func (s *site) slot(now time.Time, slowBelow float64, most time.Duration) slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	mine := slot{seq: s.sent}
	s.windows = slices.DeleteFunc(s.windows, func(w *window) bool { return w.over(now) })
	for _, w := range s.windows {
		if !s.mixed(w.from, w.policy, w.partition) {
			mine.wait = max(mine.wait, w.turn(now, slowBelow).Sub(now))
		}
	}
	keeps, empty := mine.wait <= most, false
	for _, w := range s.windows {
		if s.mixed(w.from, w.policy, w.partition) {
			continue
		}
		took := taken{w: w, unit: w.left >= 1}
		empty = empty || !took.unit
		if keeps {
			took.step = w.book(now, slowBelow)
		}
		if took.unit {
			w.left--
		}
		mine.of[mine.n] = took
		mine.n++
	}
	if empty { // spreads the requests that wait for the end of a window
		mine.wait = gate.Spread(mine.wait)
	}
	return mine
}

// mixed reports whether a limit is one of several buckets: it is known only afterwards in which a request counts.
func (s *site) mixed(from *source, policy, partition string) bool {
	return from != nil && slices.ContainsFunc(s.windows, func(o *window) bool {
		return o.from == from && (o.policy != policy || o.partition != partition)
	})
}

// leave returns the slot of a request: its time, and also its units if the request is not sent. Requests behind it keep
// their times. A later request may be sent at the same time as one of them.
func (s *site) leave(mine *slot, sent bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, took := range mine.of[:mine.n] {
		w := took.w
		if took.step > 0 {
			w.next = latest(now, w.next.Add(-took.step))
		}
		if took.unit && !sent {
			w.left = min(w.left+1, w.quota)
		}
	}
}

// over reports whether the window and all its spread requests are in the past.
func (w *window) over(now time.Time) bool { return !now.Before(w.ends) && !now.Before(w.next) }

// turn returns the time at which to send the next request. If few units are left, requests are spread over the window.
// If none is left, they follow after the window, at the policy's rate if known.
func (w *window) turn(now time.Time, slowBelow float64) time.Time {
	switch {
	case w.left < 1:
		return latest(now, w.ends, w.next)
	case w.scarce(slowBelow):
		return latest(now, w.next)
	}
	return now
}

// scarce reports whether fewer units are left than the fraction slowBelow of the quota.
func (w *window) scarce(slowBelow float64) bool {
	return float64(w.left) < slowBelow*float64(w.quota)
}

// book takes the next turn and returns the delay that this causes for the turn after it.
func (w *window) book(now time.Time, slowBelow float64) (step time.Duration) {
	at := w.turn(now, slowBelow)
	switch {
	case w.left < 1:
		step = w.each
	case w.scarce(slowBelow):
		step = max(0, w.ends.Sub(at)) / time.Duration(w.left)
	}
	if step > 0 {
		w.next = at.Add(step)
	}
	return step
}

// latest returns the latest of the times.
func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}

// answer is the part of a response that concerns refusals.
type answer struct {
	refused bool          // the limits of the server refused the request
	told    bool          // the time in which the site accepts no request is known
	after   time.Duration // that time
}

// observe updates the site from the response to request number seq.
func (t *Transport) observe(s *site, seq uint64, resp *http.Response) (a answer, hints []hint) {
	now := time.Now()
	cached := stale(resp.Header)
	if !cached {
		hints = hintsOf(resp.Header, now)
	}
	a = refusalOf(resp.StatusCode, resp.Header, hints, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.told {
		s.block(now.Add(min(a.after, t.cfg.MaxBlock)), seq)
		return a, hints // it takes precedence over the windows
	}
	for i := range hints {
		s.note(hints[i], seq, now)
		hints[i].mixed = s.mixed(hints[i].from, hints[i].policy, hints[i].partition)
	}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests && t.cfg.Pause > 0:
		s.pause(t.cfg.Pause, t.cfg.MaxBlock, seq, now)
		a.told, a.after = true, max(0, s.until.Sub(now)) // the pause of a request that was sent before is over
	case !a.refused && !cached && resp.StatusCode < http.StatusInternalServerError && seq > s.paused:
		s.pauses = 0
	}
	return a, hints
}

// block holds up all requests until a time; it never shortens an earlier block. It replaces all windows, and hints in
// responses to requests up to seq are ignored afterwards.
func (s *site) block(until time.Time, seq uint64) {
	s.refused = max(s.refused, seq)
	s.until = latest(s.until, until)
	s.windows = nil
}

// pause holds up all requests after a refusal that names no time: for first, and twice as long after each further one
// in a row. Refusals of requests that were sent before the pause belong to the same one.
func (s *site) pause(first, most time.Duration, seq uint64, now time.Time) {
	if seq <= s.paused {
		return
	}
	length := most
	if s.pauses < 62 && first < most>>s.pauses {
		length = first << s.pauses
	}
	s.pauses++
	s.paused = s.sent
	s.until = latest(s.until, now.Add(length))
}

// note updates the window of a limit from the response to request number seq. The server may not have counted the
// requests sent after that one, so note subtracts them. It ignores a response to an older request than the last one
// noted.
func (s *site) note(one hint, seq uint64, now time.Time) {
	if seq <= s.refused || one.ends == 0 || one.left < 0 || !one.requests {
		return
	}
	var w *window
	for _, have := range s.windows {
		if have.from == one.from && have.policy == one.policy && have.partition == one.partition {
			w = have
		}
	}
	if w == nil {
		if len(s.windows) >= maxWindows {
			return
		}
		w = &window{from: one.from, policy: one.policy, partition: one.partition}
		s.windows = append(s.windows, w)
	}
	if seq < w.heard {
		return
	}
	w.heard = seq
	w.quota = max(w.quota, one.left)
	if one.quota > 0 {
		w.quota, w.each = one.quota, one.each
	}
	w.left = max(0, one.left-int64(s.sent-seq))
	w.ends = now.Add(one.ends)
	if w.left > 0 && w.next.After(w.ends) {
		w.next = now // the window has units again, so spreading starts anew
	}
}
