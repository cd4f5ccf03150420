package httplimit

import (
	"container/list"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// sites are what is known of servers, the most recently used first.
type sites struct {
	most  int
	mu    sync.Mutex
	known map[string]*list.Element
	order list.List // of *site
}

// of finds or makes a key's; the oldest makes room.
func (s *sites) of(key string) *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.known[key]; ok {
		s.order.MoveToFront(e)
		return e.Value.(*site)
	}
	if s.known == nil {
		s.known = map[string]*list.Element{}
	}
	if len(s.known) >= s.most {
		last := s.order.Back()
		delete(s.known, s.order.Remove(last).(*site).key)
	}
	made := &site{key: key}
	s.known[key] = s.order.PushFront(made)
	return made
}

// site is what is known of one server's limits.
type site struct {
	key string

	mu      sync.Mutex
	until   time.Time // no request before that
	refused uint64    // the youngest request that was answered so
	sent    uint64    // requests so far, those that wait for their slot among them
	windows []*window // maxWindows at most
}

// maxWindows is how many policies are looked at: a server may tell of as many
// as it likes.
const maxWindows = 8

// window is what was told of one policy.
type window struct {
	policy, partition string
	heard             uint64        // the youngest request whose answer told of it
	quota             int64         // what there was at most, or was told
	each              time.Duration // a unit at the policy's rate; 0: not known
	left              int64         // less what was sent since
	ends              time.Time
	next              time.Time // when the next of those that are spread is sent
}

// blocked is how long the server wants no request.
func (s *site) blocked(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until.Sub(now)
}

// slot is what a request has taken of each window.
type slot struct {
	seq  uint64 // which of the site's requests it is
	wait time.Duration
	of   [maxWindows]taken
	n    int
}

type taken struct {
	w    *window
	unit bool          // one that was left
	step time.Duration // by which others were put off
}

// slot counts a request, and says how long it should wait. One that would wait
// for longer than most takes its units, and no time that it will not keep.
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
	if empty { // so that those who wait for a window's end do not come together
		mine.wait = plus(mine.wait, jitter(mine.wait))
	}
	return mine
}

// leave gives back what a request has taken: its time, and if it is not sent
// its units too. Those behind keep their times; who comes next may come together
// with one of them.
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

// over says whether nothing that was told holds any longer.
func (w *window) over(now time.Time) bool { return !now.Before(w.ends) && !now.Before(w.next) }

// turn is when the next request should be sent. With little left, the rest is
// spread over the window; with none, requests come after it, at the policy's
// rate if that is known.
func (w *window) turn(now time.Time, slowBelow float64) time.Time {
	switch {
	case w.left < 1:
		return latest(now, w.ends, w.next)
	case w.scarce(slowBelow):
		return latest(now, w.next)
	}
	return now
}

func (w *window) scarce(slowBelow float64) bool {
	return float64(w.left) < slowBelow*float64(w.quota)
}

// book takes the turn, and says by how much the next one is later.
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

func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}

// answer is what a response says of limits.
type answer struct {
	refused bool
	told    bool          // when to come back
	after   time.Duration // and that is then
}

// hear notes what a response to the seq-th request says.
func (t *Transport) hear(s *site, seq uint64, resp *http.Response) (a answer) {
	now := time.Now()
	a.refused = resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
	if a.refused {
		if a.after, a.told = retryAfterOf(resp.Header, now); a.told {
			s.block(now.Add(min(a.after, t.cfg.MaxBlock)), seq)
			return a // which takes precedence over RateLimit
		}
	}
	if stale(resp.Header) {
		return a
	}
	limits, err := ratelimitheader.ParseRateLimit(resp.Header)
	if err != nil || len(limits) == 0 {
		return a // malformed fields are ignored, as the draft wants
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

// block puts requests off, never to an earlier time than before. It takes
// precedence over what RateLimit has told of requests up to the refused one.
func (s *site) block(until time.Time, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = max(s.refused, seq)
	if until.After(s.until) {
		s.until = until
	}
	s.windows = nil
}

// note takes over what is told of a policy. Requests that were sent after the
// one that it answers may not be counted in it, so they are taken off. An answer
// to a request before one that was heard of since is too old.
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
		w.next = now // more is left than was thought
	}
}

// maxSeconds is the longest time.Duration, in whole seconds.
const maxSeconds = int64(1<<63-1) / int64(time.Second)

// retryAfterOf reads Retry-After: seconds, or a date, which is held against the
// server's own clock where it tells that. More seconds than can be counted are
// as many as can. False: there is none, or it is over, and the wait is 0.
func retryAfterOf(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get(fieldRetryAfter))
	n, err := strconv.ParseInt(text, 10, 64) // out of range it is the nearest
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

// stale reports whether a response was in a cache for a while. An age that is too
// large to count is one.
func stale(h http.Header) bool {
	age, err := strconv.ParseInt(h.Get("Age"), 10, 64) // out of range it is the nearest
	return (err == nil || errors.Is(err, strconv.ErrRange)) && age > 0
}
