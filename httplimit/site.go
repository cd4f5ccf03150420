package httplimit

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// site is the state of one server's limits.
type site struct {
	mu      sync.Mutex
	until   time.Time // no request is sent before
	refused uint64    // the number of the last request whose refusal set until
	sent    uint64    // the number of requests so far, including waiting ones
	windows []*window // at most maxWindows
}

// maxWindows bounds the policies of a site: a server may send any number.
const maxWindows = 8

// window is the state of one policy, from the last response that described it.
type window struct {
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
	kept := s.windows[:0]
	for _, w := range s.windows {
		if w.over(now) {
			continue
		}
		kept = append(kept, w)
		mine.wait = max(mine.wait, w.turn(now, slowBelow).Sub(now))
	}
	clear(s.windows[len(kept):])
	s.windows = kept
	keeps, empty := mine.wait <= most, false
	for _, w := range kept {
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

// answer is the part of a response that concerns limits.
type answer struct {
	refused bool          // 429 or 503
	told    bool          // there is a Retry-After in the future
	after   time.Duration // its wait
}

// observe updates the site from the response to request number seq.
func (t *Transport) observe(s *site, seq uint64, resp *http.Response) (a answer) {
	now := time.Now()
	a.refused = resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
	if a.refused {
		if a.after, a.told = retryAfterOf(resp.Header, now); a.told {
			s.block(now.Add(min(a.after, t.cfg.MaxBlock)), seq)
			return a // Retry-After takes precedence over RateLimit
		}
	}
	if stale(resp.Header) {
		return a
	}
	limits, err := ratelimitheader.ParseRateLimit(resp.Header)
	if err != nil || len(limits) == 0 {
		return a // the draft requires clients to ignore malformed fields
	}
	policies, err := ratelimitheader.ParseRateLimitPolicy(resp.Header)
	if err != nil {
		policies = nil
	}
	limits = limits[:min(len(limits), maxWindows)]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		s.note(l, policies, seq, now)
	}
	return a
}

// block holds up all requests until a time; it never shortens an earlier block. It replaces all windows, and RateLimit
// fields in responses to requests up to seq are ignored afterwards.
func (s *site) block(until time.Time, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = max(s.refused, seq)
	if until.After(s.until) {
		s.until = until
	}
	s.windows = nil
}

// note updates the window of a policy from the response to request number seq. The server may not have counted the
// requests sent after that one, so note subtracts them. It ignores a response to an older request than the last one
// noted.
func (s *site) note(l ratelimitheader.ServiceLimit, policies []ratelimitheader.QuotaPolicy, seq uint64, now time.Time) {
	var policy ratelimitheader.QuotaPolicy
	for _, p := range policies {
		if p.Name == l.Policy && p.PartitionKey == l.PartitionKey {
			policy = p
		}
	}
	if seq <= s.refused || l.Window == 0 || policy.Unit != "" && policy.Unit != ratelimitheader.UnitRequests {
		return
	}
	var w *window
	for _, have := range s.windows {
		if have.policy == l.Policy && have.partition == l.PartitionKey {
			w = have
		}
	}
	if w == nil {
		if len(s.windows) >= maxWindows {
			return
		}
		w = &window{policy: l.Policy, partition: l.PartitionKey}
		s.windows = append(s.windows, w)
	}
	if seq < w.heard {
		return
	}
	w.heard = seq
	w.quota = max(w.quota, l.Remaining)
	if policy.Quota > 0 {
		w.quota = policy.Quota
		w.each = policy.Window / time.Duration(policy.Quota)
	}
	w.left = max(0, l.Remaining-int64(s.sent-seq))
	w.ends = now.Add(l.Window)
	if w.left > 0 && w.next.After(w.ends) {
		w.next = now // the window has units again, so spreading starts anew
	}
}

// maxSeconds is the longest time.Duration, in whole seconds.
const maxSeconds = int64(1<<63-1) / int64(time.Second)

// retryAfterOf returns the wait of Retry-After, in seconds or as a date. A date is compared with the server's Date if
// there is one, else with now. Too many seconds for a time.Duration are cut to maxSeconds. It returns 0 and false if
// there is no Retry-After or if it is in the past.
func retryAfterOf(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get(fieldRetryAfter))
	n, err := strconv.ParseInt(text, 10, 64) // out of range, n is the nearest int64
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(max(n, 0), maxSeconds)) * time.Second, n > 0
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	after := max(0, at.Sub(now))
	return after, after > 0
}

// stale reports whether a response comes from a cache: whether its Age is positive, even if too large for an int64.
func stale(h http.Header) bool {
	age, err := strconv.ParseInt(h.Get("Age"), 10, 64) // out of range, age is the nearest int64
	return (err == nil || errors.Is(err, strconv.ErrRange)) && age > 0
}
