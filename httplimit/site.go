package httplimit

import (
	"container/list"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
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
	sent    uint64    // requests so far
	windows []*window // maxWindows at most
}

// maxWindows is how many policies are looked at: a server may tell of as many
// as it likes.
const maxWindows = 8

// window is what was told of one policy.
type window struct {
	policy, partition string
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

// slot counts a request, and says how long it should wait.
func (s *site) slot(now time.Time, slowBelow float64) (seq uint64, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	kept := s.windows[:0]
	for _, w := range s.windows {
		if w.over(now) {
			continue
		}
		kept = append(kept, w)
		wait = max(wait, w.slot(now, slowBelow))
	}
	clear(s.windows[len(kept):])
	s.windows = kept
	return s.sent, wait
}

// over says whether nothing that was told holds any longer.
func (w *window) over(now time.Time) bool { return !now.Before(w.ends) && !now.Before(w.next) }

// slot takes one unit. With little left, the rest is spread over the window;
// with none, requests come after it, at the policy's rate if that is known.
func (w *window) slot(now time.Time, slowBelow float64) time.Duration {
	at := now
	switch {
	case w.left < 1:
		if at = latest(now, w.ends, w.next); w.each > 0 {
			w.next = at.Add(w.each)
		}
		return at.Sub(now) + jitter(at.Sub(now))
	case float64(w.left) < slowBelow*float64(w.quota):
		at = latest(now, w.next)
		w.next = at.Add(max(0, w.ends.Sub(at)) / time.Duration(w.left))
	}
	w.left--
	return at.Sub(now)
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
			s.block(now.Add(min(a.after, t.cfg.MaxBlock)))
			return a // which takes precedence over RateLimit
		}
	}
	if stale(resp.Header) {
		return a
	}
	limits, err := ParseRateLimit(resp.Header)
	if err != nil || len(limits) == 0 {
		return a // malformed fields are ignored, as the draft wants
	}
	policies, err := ParseRateLimitPolicy(resp.Header)
	if err != nil {
		policies = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		s.note(l, policies, seq, now)
	}
	return a
}

// block puts requests off, never to an earlier time than before.
func (s *site) block(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.After(s.until) {
		s.until = until
	}
	s.windows = nil
}

// note takes over what is told of a policy. Requests that were sent after the
// one that it answers may not be counted in it, so they are taken off.
func (s *site) note(l ServiceLimit, policies []QuotaPolicy, seq uint64, now time.Time) {
	var policy QuotaPolicy
	for _, p := range policies {
		if p.Name == l.Policy && p.PartitionKey == l.PartitionKey {
			policy = p
		}
	}
	if l.Window == 0 || policy.Unit != "" && policy.Unit != unitRequests {
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
	w.quota = max(w.quota, l.Remaining)
	if policy.Quota > 0 {
		w.quota = policy.Quota
		w.each = policy.Window / time.Duration(policy.Quota)
	}
	w.left = max(0, l.Remaining-int64(s.sent-seq))
	w.ends = now.Add(l.Window)
	if w.left > 0 && w.next.After(w.ends) {
		w.next = w.ends // more is left than was thought
	}
}

// retryAfterOf reads Retry-After: seconds, or a date, which is held against the
// server's own clock where it tells that. False: there is none, or it is over.
func retryAfterOf(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get(fieldRetryAfter))
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(n, maxSeconds)) * time.Second, n > 0
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	after := at.Sub(now)
	return after, after > 0
}

// stale says whether a response was in a cache for a while.
func stale(h http.Header) bool {
	age, err := strconv.Atoi(h.Get("Age"))
	return err == nil && age > 0
}
