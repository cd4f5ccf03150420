package account

import "github.com/hybridlimit/hybridlimit/internal/algo"

// mutant is a rule switched off. The step has no hooks for it: the world
// alters the state around the step, or what Redis says.
type mutant uint8

const (
	mutNone             mutant = iota
	mutInflight                // what is in flight does not count as owed
	mutSendRefill              // the view refills from when the question left
	mutNoNetting               // a lease is kept beside the credit spent meanwhile
	mutNetExpired              // an expired grant pays too
	mutReceiptDeadline         // a lease's life counts from the answer
	mutCreditWhileAsked        // credit is spent while asks are in flight
	mutLongLife                // every lease lives for a second
	mutNoTicks                 // the deadline is not two ticks early
	mutAnyCost                 // one unit of credit is enough for any cost
	mutBlind                   // a forgotten key is taken for full
	mutBlindSoon               // it is taken for full after one time to full
	mutEvictOwing              // a key that owes is forgotten
	mutLateWord                // a word stays good although its epoch passed

	// What follows is of Redis, and of how batches are sent.
	mutNoEnvelope   // a batch is debited as often as it arrives
	mutStaleApplied // a batch older than the last is applied
	mutSkipEvicted  // a batch seen before is skipped though its key was lost
	mutNoReplay     // a batch seen before gets no grants
	mutStampNow     // an envelope's stamp may lie before its key's birth
	mutNoMerge      // views are not heeded
	mutNoSince      // what was debited since a state's birth does not add to a view
	mutFresh        // instead of a view: "the state was not there", and one owes one's own again
	mutNoResync     // nobody syncs for his view's sake
	mutClockResets  // a clock that stepped back begins a new state
	mutRetryPicksUp // a retry carries what is pending by then, under the old sequence
	mutRetryMoves   // a retry has a new sequence
	mutRetrySplits  // a retry carries half, the rest waits
	mutDenyReceipt  // a view proves denials as of its receipt

	// Of the ledger.
	mutNoCeiling     // the bucket fills up whatever is leased
	mutOneGeneration // a lease is forgotten when its second ends
	mutViewFull      // a view refills to the burst while the ledger stands
	mutKeepGranted   // what was granted to callers who left is kept beside a booked lease

	// And of the heartbeats.
	mutEagerNewcomer // a process gives credit as soon as it counts somebody
	mutLastCount     // N is the last count

	// Of windows.
	mutUncapped   // credit has no bound but the view
	mutDropLate   // what comes after its window is not counted
	mutLateHere   // it is counted in the window in which it comes
	mutViewStays  // a view outlives its window
	mutWordStays  // a word of credit does
	mutNoCarry    // a fixed window begins at nothing
	mutOwedDenies // what is owed of the last window proves denials in this one
	mutClockTag   // what is owed names the window that Redis's clock shows

	// Of batches that are given up.
	mutDropBooked // what is leased stays booked, and is settled again
	mutDropSpent  // what was given up may be spent again on the same view
	mutGapSettles // a batch that shows a gap settles with the ledger
)

// forgetInflight hides what is in flight until the returned function is called.
func (w *world) forgetInflight(p *proc) func() {
	if w.mutant != mutInflight {
		return func() {}
	}
	hidden := p.s.inflight
	p.s.inflight = 0
	return func() { p.s.inflight = hidden }
}

// giveUpStep is Account.GiveUp, or a wrong one.
func (w *world) giveUpStep(p *proc) int64 {
	s := &p.s
	booked, leases, untold := s.booked, s.leases, s.untold
	units := s.GiveUp(&p.waiters).Dropped
	switch w.mutant {
	case mutDropBooked:
		s.booked, s.leases = booked, leases
	case mutDropSpent:
		s.untold = untold
	}
	return units
}

// receiveStep is Account.Receive, or a wrong one.
func (w *world) receiveStep(p *proc, c *Conditions, ans Answer) (answered []*Waiter, next Sync, b Books) {
	s := &p.s
	receive := func() { answered, next, b = s.Receive(c, p.plan, &p.waiters, ans, w.now) }
	switch w.mutant {
	case mutSendRefill:
		receive()
		s.view.received = s.view.sent
	case mutDenyReceipt:
		receive()
		s.view.sent = s.view.received
	case mutNoNetting:
		pending := s.pending
		s.pending = 0
		receive()
		s.pending += pending
	case mutNetExpired:
		late := w.now >= ans.Sent+ans.Life*1000-2*c.Tick
		receive()
		if late {
			net := min(b.Lost, s.pending)
			s.pending -= net
			b.Lost -= net
		}
	case mutReceiptDeadline:
		sent := ans.Sent
		ans.Sent = w.now
		receive()
		s.view.sent = sent
	case mutViewFull:
		receive()
		s.view.cap = c.Bucket.Cap
	case mutKeepGranted:
		receive()
		if end := ans.Sent + ans.Life*1000 - 2*c.Tick; ans.Gen != 0 && w.now < end {
			b.Lost = s.keep(lease{units: b.Lost, end: end, booked: true})
		}
	case mutViewStays:
		receive()
		s.view.ends = never64
	case mutClockTag:
		receive()
		s.view.window = c.Window.Number(ans.RedisNow)
	case mutNoTicks:
		no := *c
		no.Tick = 0
		c = &no
		receive()
	default:
		receive()
	}
	return answered, next, b
}

func (m mutant) String() string {
	return [...]string{
		"none", "what is in flight is not owed", "refill counts from the sending", "no netting", "an expired grant is netted",
		"a lease lives from its receipt", "credit while asks are in flight", "every lease lives a second", "no two ticks",
		"credit for any cost", "always blind", "blind too soon", "an owing key is forgotten", "a word outlives its epoch",
		"no envelope", "an old batch is applied", "a lost key's batch is skipped", "grants are not replayed", "a stamp before the birth",
		"no merge", "a merge without since", "fresh instead of a merge", "no resync", "a clock step back resets",
		"a retry picks up", "a retry moves", "a retry splits", "denials as of the receipt", "no ceiling", "one generation", "a view fills up", "grants are kept", "an eager newcomer", "the last count",
		"uncapped", "late units are dropped", "late units count where they come", "a view outlives its window", "a word outlives its window",
		"no carry", "owed of another window denies", "the clock names the window",
		"a batch given up stays booked", "units given up are spent again", "a batch that shows a gap settles",
	}[m]
}

// spoilRetry alters a frozen batch that is about to be sent again.
func (w *world) spoilRetry(p *proc) {
	f, s := p.frozen, &p.s
	switch w.mutant {
	case mutRetryPicksUp:
		w.begin(p)
		f.op.Owed += s.pending
		s.inflight, s.pending = s.inflight+s.pending, 0
		w.end(p)
	case mutRetryMoves:
		p.seq++
		f.batch.seq = p.seq
	case mutRetrySplits:
		w.begin(p)
		half := f.op.Owed / 2
		f.op.Owed -= half
		s.inflight, s.pending = s.inflight-half, s.pending+half
		w.end(p)
	}
}

// freshDebts is what a process does with the word that the state was new: it
// owes again what it knows to have used.
func (w *world) freshDebts(p *proc, op algo.Op, r modelReply) {
	if w.mutant != mutFresh {
		return
	}
	if r.fresh && p.own > 0 {
		p.s.pending, p.own = p.s.pending+p.own, 0
	}
	p.own += op.Owed + r.ans.Granted + r.ans.Lease
}
