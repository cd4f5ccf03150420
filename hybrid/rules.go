package hybrid

import (
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// rules is a limit and what follows from it.
type rules struct {
	limit      hybridlimit.Limit
	burst      int64      // limit.BurstSize()
	algo.Scale            // of a limit that counts
	full       int64      // ns from empty to full
	perNs      float64    // of a bucket: units that come back in a ns
	perUnit    float64    // of a bucket: µs in which one comes back
	from       rulesOrder // who gave the limit
	began      int64      // ns; when SetLimit, or the call, brought it; 0: it has been in force for long
	// counts is the algorithm of the limiter's last limit that counts: what
	// state there may be is of it.
	counts hybridlimit.Algorithm
}

// since is the µs for which the limit has been in force, for algo.Op.Since.
func (r *rules) since(now int64) int64 {
	if r.began == 0 {
		return 0
	}
	return r.Since((now - r.began) / 1000)
}

// rulesOrder says who gave a key its limit.
type rulesOrder uint8

const (
	fromLimiter rulesOrder = iota // SetLimit changes it
	fromConfig                    // Config.LimitFor
	fromCall                      // AllowLimit
)

func newRules(l hybridlimit.Limit) *rules {
	r := &rules{limit: l, burst: l.BurstSize(), full: int64(l.TimeToFull()), counts: l.Algorithm}
	if !static(l) {
		r.Scale = algo.ScaleOf(l)
		if r.Window.Period == 0 {
			r.perNs = float64(l.Rate) / float64(l.Period)
			r.perUnit = float64(r.Bucket.Unit) / float64(r.Bucket.Refill)
		}
	}
	return r
}

// static says whether a limit counts nothing: it admits all, or none.
func static(l hybridlimit.Limit) bool {
	return l.Algorithm == hybridlimit.AlgUnlimited || l.Algorithm == hybridlimit.AlgBlocked
}

// static is the answer of a limit that counts nothing.
func (r *rules) static(res hybridlimit.Result, n int64) (hybridlimit.Result, bool) {
	if !static(r.limit) {
		return res, false
	}
	res.Limit, res.Source = r.limit.BurstSize(), hybridlimit.SourceStatic
	if res.Allowed = r.limit.Algorithm == hybridlimit.AlgUnlimited; res.Allowed {
		res.Granted, res.Remaining = n, res.Limit
	} else {
		res.RetryAfter = hybridlimit.Never
	}
	return res, true
}

// exactly says whether every decision asks Redis: what is logged has to be,
// each call with its own time. A limit that counts nothing stands for the one
// before it: LimitFor may still give keys logs.
func (l *Limiter) exactly(r *rules) bool {
	return l.cfg.Mode == ModeExact || r.Kind == algo.KindLog || r.counts == hybridlimit.AlgSlidingLog
}

// each is how many ns a unit of a queue takes.
func (r *rules) each() int64 { return (r.Bucket.Unit*1000 + r.Bucket.Refill - 1) / r.Bucket.Refill }

// slot is each, and 0 where nothing is queued.
func (r *rules) slot() time.Duration {
	if !r.Bucket.Queue {
		return 0
	}
	return time.Duration(r.each())
}

// refilled is how long until a bucket in which so many units are left is full,
// in whole µs, rounded up. (A division of integers would be a fifth of what a
// decision takes.)
func (r *rules) refilled(left float64) time.Duration {
	return time.Duration(int64((float64(r.burst)-left)*r.perUnit+(1-1e-6))) * time.Microsecond
}

// outdated says whether SetLimit has replaced the limit that a key still has.
func (l *Limiter) outdated(r *rules) bool { return r.from == fromLimiter && r != l.rules.Load() }

// backToOwn says whether a key that has these rules goes back to its own with
// the next call that brings no limit: a call brought the last one, or SetLimit
// has replaced what LimitFor gave it too.
func (l *Limiter) backToOwn(r *rules) bool {
	return r.from == fromCall || l.cfg.LimitFor != nil && l.outdated(r)
}

// SetLimit changes the limit of every key that has none of its own, at once.
// What a key has used stays used: its level, in units, survives, capped at the
// new burst, and refills at the new rate from then on. It is never a free
// refill. Units already leased may still be spent, for a second at most, or, of
// windows, until their window ends. Other processes keep theirs until they are
// told too; meanwhile each op counts by its sender's limit.
//
// It changes this process only, and the algorithm not at all. A limiter that
// shares its identity with another of this program refuses, because the other
// would go on with the old limit.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	l.setting.Lock()
	defer l.setting.Unlock()
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if l.cfg.FallbackFloor > limit.BurstSize() && !static(limit) {
		bad.Add("Limit.Burst", limit.BurstSize(), fmt.Sprintf("must not be below Config.FallbackFloor (%d)", l.cfg.FallbackFloor))
	}
	have := l.rules.Load()
	if err := errors.Join(bad.Err("hybrid"), sameAlgorithm(limit, have)); err != nil {
		return err
	}
	if err := reclaim(identity{l.hub.client, l.hub.cfg.Prefix, l.cfg.Name}, limit); err != nil {
		return err
	}
	r := newRules(limit)
	r.began = max(1, l.hub.clock.Now())
	if static(limit) {
		r.counts = have.counts
	}
	l.rules.Store(r)
	l.hub.clock.Void()
	return nil
}

// sameAlgorithm refuses a limit that counts otherwise than a limiter does: what
// is used under the one says nothing under the other. Limits that count nothing
// go with all.
func sameAlgorithm(limit hybridlimit.Limit, have *rules) error {
	var bad hybridlimit.Violations
	if counts := (hybridlimit.Limit{Algorithm: have.counts}); limit.Algorithm != have.counts && !static(limit) && !static(counts) {
		bad.Add("Limit.Algorithm", limit.Algorithm, "must be the limiter's, "+have.counts.String())
	}
	return bad.Err("hybrid")
}

// adapt gives an entry other rules, of a limit that counts. Call it under e.mu.
func (e *entry) adapt(r *rules, now int64) {
	old := e.rules.Load()
	if old == r {
		return
	}
	e.begin(now)
	e.rules.Store(r)
	if s := &e.state.share; s.started {
		s.refill(e.lim.shareTerms(old, e.lim.fleet.size()), now)
	}
	e.state.adapt(old, r, now)
}

// exactLevel is as far as a level may be from 0: Lua counts it in a float64.
const exactLevel = 1 << 52

// adapt is what becomes of a state when its key gets other rules. Drain it and
// expire its leases before. Redis, too, refills at the old rate until the limit
// came into force.
func (s *state) adapt(old, r *rules, now int64) {
	if old.limit == r.limit {
		return
	}
	s.refusal = refusal{}
	v := &s.view
	if old.Kind != r.Kind || r.Window.Period > 0 || static(old.limit) || static(r.limit) {
		*v, s.used = view{}, true // of another window
		s.window = 0
		for i := range s.refunds {
			s.refunds[i].at = 0
		}
		return
	}
	from := max(v.received, r.began)
	if r.began == 0 || r.from == fromCall {
		from = max(v.received, now)
	}
	passed := (from - v.received) / 1000
	was := old.Bucket
	if from-v.received < ledgerMemory {
		was.Cap = v.cap
	}
	if passed > exactLevel/r.Bucket.Refill { // too long for a level to count
		*v, s.used = view{}, true
		return
	}
	v.level, v.cap = r.Bucket.Convert(was.Fill(v.level, passed), old.Bucket), r.Bucket.Convert(v.cap, old.Bucket)
	v.turn, v.relook = 0, 0             // what it proved, it proved of the old limit
	v.level -= passed * r.Bucket.Refill // as if it had been refilled at the new rate all the time
}
