package account

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Answer is Redis's answer to an op, and its times.
type Answer struct {
	algo.Answer
	RedisNow int64 // µs of Redis time
	Sent     int64 // ns; the time at which the op was first sent
	At       int64 // ns; the time at which Redis answered, estimated alike in all processes; only queues need it

	carried int   // number of calls that still wait and that the op carried; they are the first in the list
	each    int64 // of a queue: ns for one unit, under the limit that the op had
}

// closed reports whether a calendar window of the op is not that of Redis's clock. Redis then grants and debits nothing,
// and the next op has another one. Only a batch that came before, when its window was open, has grants.
func (ans *Answer) closed(w algo.Window) bool { return w.Calendar && ans.Ends == 0 }

// Receive books the answer to the op in flight and decides the waiting calls. It returns the decided calls, each with
// its Verdict, and the urgency of the key's next sync. Call Begin before it. p is the key's plan, which may have
// changed since the op was sent.
func (a *Account) Receive(c *Conditions, p *Plan, ws *Waiters, ans Answer, now int64) (answered []*Waiter, next Sync, b Books) {
	sent := ws.sent
	level, changed := ans.Level-sent.Low(), sent.Limit != p.Limit
	if changed && !c.windowed() {
		ans.Level, ans.Cap = p.convert(ans.Level, sent), p.convert(ans.Cap, sent)
	} else {
		ans.Answer = sent.Seen(ans.Answer)
	}
	b = Books{Refunded: a.giving.units, Debited: ans.Granted + ans.Lease}
	var lost int64
	if changed && sent.Window.Period > 0 && ans.Gen != 0 { // a lease of a window that the new limit does not have
		lost, ans.Lease, ans.Gen, ans.Life = ans.Lease, 0, 0, 0
	}
	switch {
	case ans.Dropped && a.notLate(c, ans):
		a.oweAgain()
	case ans.Dropped:
		b.Dropped = a.inflight
	default:
		b.Acked = a.inflight
	}
	taken, late := a.takenBack(ans)
	b.Refunded += taken
	var costs []int64
	costs, ans.carried = ws.present()
	pending := a.pending
	var delays []int64 // ns; negative: not served
	if p.Bucket.Queue {
		ans.each = sent.Each()
		delays, b.Lost = a.settleQueue(c, ans, costs, now)
	} else {
		delays, b.Lost = a.settle(c, ans, costs, now)
	}
	b.Lost += late + lost
	if changed && anotherCount(sent, p) {
		b.Lost += a.leaveLimit(sent, p)
	}
	if changed && c.windowed() {
		a.view, a.lowered = view{}, 0
	}
	b.Netted = pending - a.pending

	still := ws.list[:0:0]
	for i, w := range ws.list {
		carried := i < ans.carried
		v := Verdict{Action: Admit, Source: hybridlimit.SourceRedis, Reason: Granted, Delay: delays[i], Window: a.view.window}
		switch {
		case delays[i] >= 0 && !carried:
			v.Reason = Spare
		case delays[i] < 0:
			v = a.unserved(c, p, w, now)
			next = max(next, v.Sync)
			if v.Action == Ask && carried && !ans.closed(sent.Window) && !a.reclaims(c, []int64{w.N}) { // an op returns the units of one window
				v = a.refuse(c, sent, level, w.N, now)
			}
		}
		if v.Action == Ask {
			still = append(still, w)
			continue
		}
		w.Verdict, w.done = v, true
		answered = append(answered, w)
	}
	ws.list = still
	if a.pending+a.earlier.units+a.refunds.units() > 0 {
		next = max(next, SyncLazily)
	}
	return answered, next, b
}

func (a *Account) unserved(c *Conditions, p *Plan, w *Waiter, now int64) Verdict {
	if w.Plan.Limit != p.Limit && a.Held() < w.N {
		if a.stuckAt == 0 {
			a.stuckAt = now
		}
		return Verdict{Action: Ask, Reason: WaitsForRedis, Sync: SyncNow} // the next op carries it, under its own limit
	}
	v := a.judge(c, w.N, now)
	if v.Source == hybridlimit.SourceDenyCache {
		v.Source = hybridlimit.SourceRedis // the denial follows from this answer
	}
	return v
}

// refuse denies a call that the op carried and Redis refused. Units that have come back since are for later calls. If
// the call asked again instead, and units come back faster than a round trip takes, it would wait for MaxWait. level is
// the level in the answer, under the limit of the op.
func (a *Account) refuse(c *Conditions, sent *Plan, level, n, now int64) Verdict {
	until := a.ProvedUntil(c, n)
	if !c.windowed() { // the level may have been that of another limit
		until = a.proved(c, sent.Bucket, level, n)
	}
	until = max(now, a.surelyThere(c, until), a.fadesAt(c, n), a.nextPollFor(c, n))
	return Verdict{Action: Deny, Source: hybridlimit.SourceRedis, Reason: Refused, Retry: until - now}
}

// learn takes over the view in an answer and ends the sync in flight.
func (a *Account) learn(c *Conditions, ans Answer, now int64) {
	if a.lone {
		ans.Retry = 0 // the op asked for no next poll
	}
	a.land()
	if ans.closed(c.Window) && now < a.view.ends { // the answer tells nothing of the view's window
		a.aside = 0
		return
	}
	a.untold = 0
	a.see(c, ans, now)
	a.view.level -= a.aside * c.Bucket.Unit
	a.aside = 0
}

func (a *Account) land() {
	a.inflight, a.sentIn, a.giving, a.stuckAt = 0, 0, refund{}, 0
	a.frozen, a.asked, a.leasing, a.lone = false, false, false, false
}

// see takes over the view in an answer. A log has no view: its units come back one by one.
func (a *Account) see(c *Conditions, ans Answer, now int64) {
	if a.local.admitted == 0 {
		a.local = outage{} // the next period of fallback begins at the level of the view
	}
	a.used, a.lowered = false, 0
	if c.Limit.Algorithm == hybridlimit.AlgSlidingLog {
		a.NoteLeft(ans.Level, now+ans.Ends*1000)
		return
	}
	a.view = view{
		level: ans.Level, cap: ans.Cap, createdAt: ans.Born, redisAt: ans.RedisNow, sent: ans.Sent, received: now,
		nextPoll: now + min(ans.Retry*1000, c.RelookIn), relook: now + c.RelookIn, refill: ans.Refill,
	}
	if c.windowed() { // for which Redis gives no next poll
		a.view.nextPoll, a.view.ends = 0, ans.Sent+ans.Ends*1000
		// The number is that of the window that ends at that time. After a step back of Redis's clock, RedisNow may be
		// in an earlier window.
		a.view.window = c.Window.Number(ans.RedisNow+ans.Ends) - 1
		if c.Window.Calendar { // Redis tells it
			a.view.window, a.view.refill = ans.Refill, 0
			if ans.closed(c.Window) { // the view is of a window that is over, and its time is of the next one
				a.view.createdAt, a.view.ends = 0, max(1, a.view.ends)
			}
		}
	}
	a.lowerAgain(c, now)
}

// DirectSeen takes over the view in the answer to a direct call of ModeExact or of a log. A fallback begins with it. A
// sync in flight will bring a view too.
func (a *Account) DirectSeen(c *Conditions, ans Answer, now int64) {
	if !a.frozen && !ans.closed(c.Window) {
		a.see(c, ans, now)
	}
}

// settle books an answer. waiting is the costs of the calls that still wait, in order; the calls that the op carried
// come first. delays has for each of them 0, or a negative number if it is not served. lost is the number of lost
// units.
func (a *Account) settle(c *Conditions, ans Answer, waiting []int64, now int64) (delays []int64, lost int64) {
	was, hoped := a.view, a.hopes(c) || a.hopesHere(c)
	a.learn(c, ans, now)
	var gone int64
	if c.windowed() && ans.Gen != 0 {
		gone = a.keepAhead(c, ans, now)
		ans.Life = 0
		if ans.Gen > a.view.window { // the granted units are of the answer's window
			ans.Life = ans.Ends
		}
		ans.Lease, ans.Gen = 0, 0
	}
	if c.MaxLife > 0 && !c.windowed() { // Redis does not know MaxLife from a plain op; its unused grants are free leases
		ans.Life = min(ans.Life, c.MaxLife*algo.Generation)
	}
	// Rules 2 and 11: the life counts from the sending, because Redis may have granted the units then. It ends two
	// ticks early, because the epoch may lag by one tick and a tick may be late.
	end := ans.Sent + ans.Life*1000 - 2*c.Tick
	lost = gone + a.renew(ans.Gen, ans.Lease, end)
	if !ans.closed(c.Window) {
		a.view.relook = a.relookAt(c, was, hoped, ans.carried > 0 && ans.Granted+ans.Lease == 0, now)
	}
	// Granted units are for the calls that the op carried. These calls are admitted as of the time of the grant. During
	// the life of the answer, the bucket cannot have filled up, so that other calls may take units that are left over.
	// After the life, or if the answer uses the ledger, they may not: the ledger does not hold granted units (rule 10).
	grants, pool := ans.Granted, ans.Lease
	delays = make([]int64, len(waiting))
	for i, n := range waiting[:ans.carried] {
		if delays[i] = -1; n <= grants {
			grants, delays[i] = grants-n, 0
		}
	}
	switch alive := now < end; {
	case !alive && ans.Gen != 0:
		a.booked.over, pool = a.booked.over+pool, 0
	case !alive:
		lost, pool = lost+pool, 0
	case ans.Gen == 0:
		grants, pool = 0, pool+grants
	}
	// Rule 3: a lease first pays the credit that was spent while it was in flight. The process had a view from before
	// the lease. Keeping both would admit C more. A call that waits is served before: while it waits there is no
	// credit, so that only charged units can be owed, which the bound does not cover.
	net := min(pool, a.pending)
	pool -= net
	a.pending -= net
	for i, n := range waiting {
		switch {
		case i < ans.carried && delays[i] == 0:
		case n <= pool:
			delays[i] = 0
			pool -= n
		default:
			delays[i] = -1
			if i < ans.carried {
				a.stayAway(c)
			}
		}
	}
	lost += grants
	// Some calls may have stopped waiting, and the fallback may have admitted them. The units granted for them pay for
	// its units.
	net = min(pool, a.local.admitted)
	pool -= net
	a.local.admitted -= net
	if pool > 0 {
		l := lease{units: pool, end: end, booked: ans.Gen != 0}
		if c.windowed() {
			l.window = a.view.window
		}
		lost += a.keep(l)
	}
	if a.Held() > 0 {
		a.watch(c, ans.Lease, ans.carried > 0, now)
	}
	return delays, lost
}

// settleQueue is settle for a queue. The delays are the ns until the calls are served. The grants and the lease are one
// block. The block counts from the time at which Redis answered. The processes of the fleet agree on that time, except
// for the shortest delay of an answer.
func (a *Account) settleQueue(c *Conditions, ans Answer, waiting []int64, now int64) (delays []int64, lost int64) {
	a.learn(c, ans, now)
	got := block(ans.Granted+ans.Lease, ans.At+ans.Delay*1000, ans.each)
	delays = make([]int64, len(waiting))
	grants := ans.Granted
	for i, n := range waiting {
		switch {
		case i < ans.carried && n <= grants: // even if the time of its slot has passed
			delays[i] = max(0, got.next-now)
			got.next, got.units, grants = got.next+n*ans.each, got.units-n, grants-n
		case got.units-got.passed(now) >= n:
			lost += got.pass(now)
			delays[i] = got.take(n, now)
		default:
			delays[i] = -1
		}
	}
	if lost += got.pass(now); got.units > 0 {
		lost += a.keep(got)
	}
	return delays, lost
}

// ReceiveClosed books an answer that arrives after the key was forgotten for good.
func (a *Account) ReceiveClosed(ans Answer) Books {
	b := Books{Acked: a.inflight, Refunded: a.giving.units, Debited: ans.Granted + ans.Lease, Lost: ans.Granted + ans.Lease}
	taken, late := a.takenBack(ans)
	b.Refunded, b.Lost = b.Refunded+taken, b.Lost+late
	a.GiveUp(new(Waiters))
	return b
}

// GiveUp drops the op in flight for good: Redis is never told of its units. Redis may have applied the op all the same.
// So leased units must not be settled again: the ledger would forget units of another process instead (rule 21). The
// held units are no longer booked and keep their end, because the ledger holds them until then. The dropped units count
// against credit until the next view (rule 22).
func (a *Account) GiveUp(ws *Waiters) Books {
	b := Books{Dropped: a.inflight - a.giving.units}
	ws.carried = 0
	a.untold += a.inflight
	a.land()
	b.Lost = a.booked.over + a.booked.back // these cannot be returned any more
	a.booked = booking{}
	for i := range a.leases {
		a.leases[i].booked = false
	}
	return b
}
