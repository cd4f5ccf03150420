package conformance

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// reference is a limiter that is simple enough to be correct: one map, one lock, and
// integers of nanoseconds times Rate. faulty makes it wrong in one way.
type reference struct {
	limit  hybridlimit.Limit
	faulty string

	mu     sync.Mutex
	keys   map[string]state
	book   map[string][]*booked
	closed bool
}

// state counts in units·Period, so that refill is Rate for each nanosecond.
type state struct {
	used int64
	at   time.Time
	of   hybridlimit.Limit // the limit under which used counts
}

func newReference(limit hybridlimit.Limit, faulty string) *reference {
	return &reference{limit: limit, faulty: faulty, keys: map[string]state{}, book: map[string][]*booked{}}
}

func (r *reference) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return r.AllowN(ctx, key, 1)
}

func (r *reference) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return r.decide(ctx, key, n, ask, nil)
}

// kind is the effect of a decision on the units.
type kind int

const (
	ask  kind = iota
	some      // takes the available units, at most n
	look      // takes no units
	owe       // takes the units unconditionally
)

// decide implements all verbs. by is the limit that comes with the call, or nil.
func (r *reference) decide(ctx context.Context, key string, n int64, what kind, by *hybridlimit.Limit) (hybridlimit.Result, error) {
	is := func(fault string) bool { return r.faulty == fault }
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && !is("ignores Close") {
		if is("grants when closed") {
			return hybridlimit.Result{Allowed: true, Granted: n}, hybridlimit.ErrClosed
		}
		return hybridlimit.Result{}, hybridlimit.ErrClosed
	}
	switch err := adapter.CheckRequest(key, n, 0); {
	case errors.Is(err, hybridlimit.ErrCost) && is("takes any cost"):
	case errors.Is(err, hybridlimit.ErrKeyTooLong) && is("takes any key"):
	case err != nil && is("charges bad input"):
		key = "k"
		s := r.keys[key]
		r.keys[key] = state{used: s.used + int64(r.limit.Period), at: time.Now(), of: r.limit}
		return hybridlimit.Result{}, err
	case err != nil:
		return hybridlimit.Result{}, err
	}
	switch {
	case is("shares one bucket"):
		key = "everybody"
	case is("cleans keys"):
		key = strings.ToValidUTF8(key, "\ufffd")
	case is("trims keys"):
		key = strings.TrimSpace(key)
	case is("cuts keys"):
		key = key[:min(len(key), 255)]
	case is("ends keys at NUL"):
		key, _, _ = strings.Cut(key, "\x00")
	case is("hashes tags"):
		if _, rest, ok := strings.Cut(key, "{"); ok {
			if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
				key = tag
			}
		}
	}

	now := time.Now()
	limit := r.limit
	if by != nil {
		limit = *by
	}
	per, burst := int64(limit.Period), limit.BurstSize()
	if is("bursts one more") {
		burst++
	}
	s, ok := r.keys[key]
	if !ok {
		s.at = now
		if is("starts empty") {
			s.used = burst * per
		}
	}
	if ok && s.of != limit {
		if !is("refills the past at a new rate") {
			s = s.refilled(now)
		}
		s = r.convert(s, limit, by != nil)
	}
	rate := limit.Rate
	switch {
	case is("refills twice as fast"):
		rate *= 2
	case is("refills half as fast"):
		rate = (rate + 1) / 2
	case is("never refills"):
		rate = 0
	}
	back := rate * int64(min(now.Sub(s.at), time.Hour))
	if !is("hoards") {
		back = min(back, max(s.used, 0))
	}
	s = state{used: s.used - back, at: now, of: limit}

	res := hybridlimit.Result{Limit: limit.BurstSize(), Source: hybridlimit.SourceLocal}
	room := burst*per - s.used
	cost := min(n, burst+1) * per
	if is("wraps costs") {
		cost = int64(int32(n)) * per
	}
	switch {
	case what == owe && !is("forgets charges"):
		s.used = min(s.used+min(n, 2*burst)*per, 2*burst*per)
		if is("owes nothing") {
			s.used = min(s.used, burst*per)
		}
		res.Allowed, res.Granted = true, n
	case what == owe:
		res.Allowed, res.Granted = true, n
	case what == look && !is("peeks for a unit"):
		res.Allowed = room >= per
	case what == some && room >= per && !is("takes all or none"):
		res.Granted = min(n, room/per)
		switch {
		case is("gives what is asked"):
			res.Granted = min(n, burst)
		case is("takes one at most"):
			res.Granted = 1
		}
		s.used += res.Granted * per
		res.Allowed = true
	case cost <= room && (!is("refuses what remains") || n > 1 || s.used == 0):
		s.used += cost
		res.Allowed, res.Granted = true, n
	case is("grants a part") && room >= per:
		res.Granted = room / per
		s.used += res.Granted * per
	case is("charges denials"):
		s.used += per
	}
	if is("loses updates") {
		r.mu.Unlock()
		runtime.Gosched()
		r.mu.Lock()
	}
	r.keys[key] = s
	if what == ask || what == some {
		r.note(key, s, res.Granted*per)
	}

	ceil := func(x int64) time.Duration { return time.Duration((x + limit.Rate - 1) / limit.Rate) }
	res.Remaining = max(0, burst*per-s.used) / per
	switch {
	case is("remains at the old value"):
		res.Remaining = max(0, room) / per
	case is("remains empty above the burst") && n > burst:
		res.Remaining = 0
	case is("denies what remains") && !res.Allowed:
		res.Remaining = min(burst, res.Remaining+1)
	case is("hides what remains") && res.Allowed:
		res.Remaining = max(0, res.Remaining-1)
	}
	res.ResetAfter = max(0, ceil(s.used))
	switch {
	case is("resets too early"):
		res.ResetAfter /= 2
	case is("resets a moment early"):
		res.ResetAfter = max(0, res.ResetAfter-1)
	case is("resets a moment late"):
		res.ResetAfter++
	case is("resets without its debt"):
		res.ResetAfter = min(res.ResetAfter, ceil(burst*per))
	}
	if !res.Allowed {
		if what == some && !is("takes all or none") {
			cost = per
		}
		switch res.RetryAfter = ceil(cost - room); {
		case cost > burst*per && !is("retries for ever"):
			res.RetryAfter = hybridlimit.Never
		case is("retries at once"):
			res.RetryAfter = 0
		case is("retries too early"):
			res.RetryAfter -= res.RetryAfter / 4
		case is("retries too late"):
			res.RetryAfter += time.Millisecond
		case is("retries much too late"):
			res.RetryAfter += 5 * time.Millisecond
		case is("retries a moment early"):
			res.RetryAfter--
		case is("retries a moment late"):
			res.RetryAfter++
		}
		if is("denies with an error") {
			return res, errors.New("denied")
		}
	}
	if is("charges ended contexts") && ctx.Err() != nil {
		return hybridlimit.Result{}, ctx.Err()
	}
	if is("has a name") {
		res.Policy = "name"
	}
	return res, nil
}

func (r *reference) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && r.faulty == "closes once" {
		return hybridlimit.ErrClosed
	}
	r.closed = true
	return nil
}
