package account

import "github.com/hybridlimit/hybridlimit/internal/algo"

// mutant names one rule of the protocol that is switched off. The account has no hooks for this: the world changes the account
// around an event, or changes the answers of Redis.
type mutant uint8

const (
	mutNone             mutant = iota
	mutInflight                // units in flight do not count as owed
	mutSendRefill              // the view refills from the time at which the op was sent
	mutNoNetting               // a lease is kept although credit was spent meanwhile
	mutNetExpired              // an expired grant also pays for credit
	mutReceiptDeadline         // a lease's lifetime counts from the answer
	mutCreditWhileAsked        // credit is spent while asks are in flight
	mutLongLife                // every lease lives for a second
	mutNoTicks                 // the deadline is not two ticks early
	mutAnyCost                 // one unit of credit is enough for any cost
	mutBlind                   // a forgotten key is taken to be full
	mutBlindSoon               // it is taken to be full after one time to full
	mutEvictOwing              // a key that owes units is forgotten
	mutLateWord                // a budget stays good although its tick has passed

	// Mutants of Redis and of the sending of batches.
	mutNoEnvelope   // a batch is debited each time it arrives
	mutStaleApplied // a batch older than the last is applied
	mutSkipEvicted  // a batch seen before is skipped although its key was lost
	mutNoReplay     // a batch seen before gets no grants
	mutStampNow     // the stamp of an envelope may be earlier than the creation of its key
	mutNoMerge      // Redis ignores views
	mutNoSince      // units debited since a state's creation are not added to a view
	mutFresh        // Redis tells that the state was missing, and a process owes its own units again; there are no views
	mutNoResync     // no process syncs only to send its view
	mutClockResets  // a clock that stepped back starts a new state
	mutRetryPicksUp // a retry also carries the units pending by then, under the old sequence number
	mutRetryMoves   // a retry has a new sequence number
	mutRetrySplits  // a retry carries half, and the rest waits
	mutDenyReceipt  // a view proves denials as of its arrival

	// Mutants of the ledger.
	mutNoCeiling     // the bucket fills up regardless of leased units
	mutOneGeneration // a lease is forgotten when its generation ends
	mutViewFull      // a view refills to the burst while the ledger has entries
	mutKeepGranted   // grants for callers that left are kept beside a booked lease

	// Mutants of the heartbeats.
	mutEagerNewcomer // a process gives credit as soon as it counts at least one process
	mutLastCount     // N is the last count
	mutIncomplete    // a count without a group of processes is used
	mutNoSilence     // a process gives credit with its first count after a gap

	// Mutants of windows.
	mutUncapped   // credit has no bound except the view
	mutDropLate   // units that arrive after their window are not counted
	mutLateHere   // such units are counted in the window in which they arrive
	mutViewStays  // a view outlives its window
	mutWordStays  // a credit budget outlives its window
	mutNoCarry    // a fixed window starts at zero
	mutOwedDenies // units owed in the last window prove denials in this one
	mutClockTag   // owed units carry the window of Redis's clock

	// Mutants of leases of the next window.
	mutAheadSent   // such a lease begins as if the answer had taken no time
	mutAheadLong   // it ends a window after the latest begin, not after the earliest
	mutNextForgot  // the next window begins without its leased units
	mutNextBeside  // grants of a sliding window ignore the leases of the next one
	mutNextBackNow // units of the next window that are returned are taken off this one
	mutNextUnseen  // a merge ignores the leases of the next window

	// Mutants of batches that are given up.
	mutDropBooked // leased units stay booked and are settled again
	mutDropSpent  // units given up may be spent again on the same view
	mutGapSettles // a batch that shows a gap settles with the ledger

	// Mutants of batches without an envelope.
	mutBareOwes     // a batch that pays owed units has no envelope
	mutNeverCovered // such a batch has no envelope when it is sent again

	// Mutants of returns.
	mutBackInHand    // units that are on their way back can be spent
	mutForgottenBack // Redis takes units back that the ledger has forgotten
	mutDropBack      // units stay in hand if the batch that returns them is given up

	// Mutants of classes.
	mutFloorless  // a lease is cut from all units, without regard to the floor
	mutUpperTurns // ops of a class above the largest floor take turns, and clear those of others
	mutUnweighted // heartbeats count processes, not their classes

	// Mutants of queues.
	mutSlotsFromSend // the slots of an answer count from the sending of the op
	mutSlotsNow      // the slots of an answer begin at the answer
	mutSlotsStay     // a slot whose time has passed is not lost
	mutSlotsAtOnce   // a call is served without regard to its slot

	// Mutants of long generations.
	mutShrinksEarly // generations shrink to a second while leases of longer ones are out
	mutShortMemory  // a view fills up after two seconds, whatever the length of a generation
	mutUnmarked     // the number of a generation does not have its length

	// Mutants of calendars: the rules of algo/calendar.go that processes with equal zone data need.
	mutAnyWindow // without a state, the sender's window counts, whatever Redis's time is
	mutOverStays // a window that is over goes on for a sender that names no better one
)

// forgetInflight hides the units in flight until the returned function is called.
func (w *world) forgetInflight(p *proc) func() {
	if w.mutant != mutInflight {
		return func() {}
	}
	hidden := p.s.inflight
	p.s.inflight = 0
	return func() { p.s.inflight = hidden }
}

// giveUpStep is Account.GiveUp, or a wrong version of it.
func (w *world) giveUpStep(p *proc) int64 {
	s := &p.s
	booked, leases, untold, back := s.booked, s.leases, s.untold, s.booked.back
	b := s.GiveUp(&p.waiters)
	w.lost += b.Lost
	units := b.Dropped
	switch w.mutant {
	case mutDropBooked:
		s.booked, s.leases = booked, leases
	case mutDropSpent:
		s.untold = untold
	case mutDropBack:
		w.lost -= back - s.keep(lease{units: back, end: p.backEnds})
	}
	return units
}

// sendStep is Account.Send, or a wrong version of it.
func (w *world) sendStep(p *proc, c *Conditions) (op algo.Op, b Books, ok bool) {
	s := &p.s
	leases := s.leases
	_, p.backEnds = s.renewable()
	op, b, ok = s.Send(c, p.plan, &p.waiters, w.now)
	if w.mutant == mutBackInHand && ok && op.Back > 0 {
		s.leases = leases
	}
	return op, b, ok
}

// receiveStep is Account.Receive, or a wrong version of it.
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
	case mutShortMemory:
		receive()
		s.view.refill = 0
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
	case mutAheadSent, mutAheadLong:
		receive()
		if ans.Lease > 0 && ans.Gen != 0 {
			w.spoilAhead(p, c, ans)
		}
	case mutSlotsFromSend:
		ans.At = ans.Sent
		receive()
	case mutSlotsNow:
		ans.Delay = 0
		receive()
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
		"a retry picks up", "a retry moves", "a retry splits", "denials as of the receipt", "no ceiling", "one generation", "a view fills up", "grants are kept", "an eager newcomer", "the last count", "a count without a group", "no silence after a gap",
		"uncapped", "late units are dropped", "late units count where they come", "a view outlives its window", "a word outlives its window",
		"no carry", "owed of another window denies", "the clock names the window",
		"a lease of the next window begins early", "it ends late", "the roll forgets it", "grants ignore it",
		"its return is of this window", "a merge ignores it",
		"a batch given up stays booked", "units given up are spent again", "a batch that shows a gap settles",
		"owed units without an envelope", "a batch never gets an envelope",
		"units on their way back are spent", "forgotten units are taken back", "units of a batch given up are kept",
		"a lease ignores the floor", "critical ops take turns", "classes are not counted",
		"slots count from the sending", "slots begin at the answer", "passed slots stay", "a call does not wait for its slot",
		"generations shrink early", "a view has a short memory", "numbers without a length",
		"any window of a sender counts", "a window that is over goes on",
	}[m]
}

// spoilRetry changes a frozen batch that is about to be sent again.
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

// freshDebts is a process's reaction to the news that the state was missing: it owes again the units that it used itself.
func (w *world) freshDebts(p *proc, op algo.Op, r modelReply) {
	if w.mutant != mutFresh {
		return
	}
	if r.fresh && p.own > 0 {
		p.s.pending, p.own = p.s.pending+p.own, 0
	}
	p.own += op.Owed + r.ans.Granted + r.ans.Lease
}
