package hybrid

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// counters are a limiter's, exported by Stats and by metrics.
type counters struct {
	born     int64 // ns on the hub's clock; set once
	words    [account.BudgetKinds]wordCount
	shown    [2][hybridlimit.NumSources]atomic.Int64 // see tally
	allowed  [hybridlimit.NumSources]atomic.Int64
	denied   [hybridlimit.NumSources]atomic.Int64
	admitted atomic.Int64 // units
	acked    atomic.Int64 // owed units that Redis acknowledged
	debited  atomic.Int64 // units granted or leased by Redis
	netted   atomic.Int64 // owed units paid from a grant
	expired  atomic.Int64 // leased units that nobody spent in time
	lost     atomic.Int64 // units granted to callers that had gone, or too late
	dropped  atomic.Int64 // owed units that Redis never hears of
	forgiven atomic.Int64 // units of fallback that had been refilled when Redis came back
	overflow atomic.Int64 // fallback decisions without memory to count them in
	returned atomic.Int64 // admitted units that callers gave back
	refunded atomic.Int64 // units that Redis has taken back
	resynced atomic.Int64 // keys told to Redis again
	ops      atomic.Int64 // frozen, and exact calls
	indebted atomic.Int64 // answers that found debt
	worst    atomic.Int64 // the largest debt found, units
}

// decided counts a decision for n units. What no limit counts (SourceStatic,
// SourceSwitch) is in nobody's books: no units of it are.
func (c *counters) decided(s hybridlimit.Source, allowed bool, n int64) {
	if !allowed {
		c.denied[s].Add(1)
		return
	}
	c.allowed[s].Add(1)
	if s != hybridlimit.SourceStatic && s != hybridlimit.SourceSwitch {
		c.admitted.Add(n)
	}
}

// wordCount is what words decided that have been taken back: units, of them
// those that were not the first of their call. So a call of one unit, which
// most are, costs the common path no count of its own.
type wordCount struct{ units, more atomic.Int64 }

func (c *counters) drained(kind account.BudgetKind, units int64) {
	if units != 0 {
		c.words[kind].units.Add(units)
	}
}

// book adds what an event did.
func (c *counters) book(b account.Books) {
	for _, each := range [...]struct {
		total *atomic.Int64
		n     int64
	}{
		{&c.acked, b.Acked},
		{&c.debited, b.Debited},
		{&c.netted, b.Netted},
		{&c.refunded, b.Refunded},
		{&c.returned, b.Returned},
		{&c.expired, b.Expired},
		{&c.lost, b.Lost},
		{&c.dropped, b.Dropped},
		{&c.forgiven, b.Forgiven},
		{&c.resynced, b.Resynced},
	} {
		if each.n != 0 {
			each.total.Add(each.n)
		}
	}
}

// tally is the decisions by who made them, and the units admitted. A call of
// several units is counted once they are all known; so that no count ever
// falls, the last one stands until then.
func (c *counters) tally() (allowed, denied [hybridlimit.NumSources]int64, admitted int64) {
	for src := range hybridlimit.NumSources {
		allowed[src], denied[src] = c.allowed[src].Load(), c.denied[src].Load()
	}
	admitted = c.admitted.Load()
	for kind := range account.BudgetKinds {
		more := c.words[kind].more.Load()
		units := c.words[kind].units.Load()
		if kind == account.DenyBudget {
			denied[account.Sources[kind]] += units - more
		} else {
			allowed[account.Sources[kind]] += units - more
			admitted += units
		}
	}
	for src := range hybridlimit.NumSources {
		allowed[src], denied[src] = rise(&c.shown[0][src], allowed[src]), rise(&c.shown[1][src], denied[src])
	}
	return allowed, denied, admitted
}

// rise raises what was shown to n and returns the larger.
func rise(shown *atomic.Int64, n int64) int64 {
	for {
		was := shown.Load()
		if n <= was {
			return was
		}
		if shown.CompareAndSwap(was, n) {
			return n
		}
	}
}

// drain takes back the words of all keys, so that what they decided is counted.
func (l *Limiter) drain() {
	l.store.sweep(func(e *entry) {
		if e.word.Load() != 0 {
			e.lock()
			e.begin(l.hub.clock.Now())
			e.unlock()
		}
	})
}

// decisions is how many have been made.
func (l *Limiter) decisions() (total int64) {
	l.drain()
	allowed, denied, _ := l.count.tally()
	for src := range hybridlimit.NumSources {
		total += allowed[src] + denied[src]
	}
	return total
}

// found notes the debt that an op was answered with. Rounded up, none is
// overlooked, and a bound in whole units still bounds it. Call it without
// e.mu: it calls the user's instrument.
func (l *Limiter) found(b algo.Bucket, level int64) {
	var debt int64
	if level < 0 {
		debt = (b.Unit - 1 - level) / b.Unit
		l.count.indebted.Add(1)
		for was := l.count.worst.Load(); debt > was && !l.count.worst.CompareAndSwap(was, debt); {
			was = l.count.worst.Load()
		}
	}
	l.hist.overshot(debt)
}

// Stats is what a limiter has done since it was made. What Redis debited for
// it is Paid + Granted, less Refunded, and at any quiet moment, to the unit,
//
//	Paid + Granted - Refunded = Admitted + Expired + Held + Lost - Owed - Dropped - Forgiven
//
// (An exact call whose answer was lost is debited and not in Granted.)
type Stats struct {
	Allowed  map[hybridlimit.Source]int64 // decisions by who made them
	Denied   map[hybridlimit.Source]int64 // decisions by who made them
	Admitted int64                        // units, but for those that no limit counted: SourceStatic, SourceSwitch
	Paid     int64                        // units owed that Redis acknowledged
	Granted  int64                        // units that Redis granted to callers or leased
	Held     int64                        // units in hand
	Owed     int64                        // units admitted that Redis has not acknowledged, less those given back
	Netted   int64                        // owed units that were paid from a grant
	Expired  int64                        // leased units that nobody spent in time
	Lost     int64                        // units granted to callers that had gone, or too late
	Dropped  int64                        // owed units that Redis never hears of
	Forgiven int64                        // units that a fallback admitted and whose part had refilled when Redis came back
	Returned int64                        // units that callers gave back: Admitted is less by them
	Refunded int64                        // of these, those that Redis has acknowledged
	Overflow int64                        // fallback decisions made without memory to count them in
	Resynced int64                        // keys synced because Redis had, or might have, lost its state

	// Ops is syncs of keys and exact calls: what the limiter has cost Redis.
	// Attempts to send one again are not counted.
	Ops int64
	// Overshoot is the largest debt, in units rounded up, that an op was
	// answered with since the start: what the fleet had admitted beyond the
	// limit. Where the guarantees of this package hold it is at most (N-1)·C,
	// with C as the largest it has been, but for what clocks drift apart.
	Overshoot int64
	// Overshoots is how many ops were answered with a debt. One debt is found
	// by every sync until it is repaid.
	Overshoots int64

	Keys    int           // keys in memory
	Evicted uint64        // keys forgotten
	Refused uint64        // keys that found memory full of keys that owe
	Fleet   int64         // N
	Credit  int64         // C of the limiter's own limit; 0 while N is not known
	Breaker breaker.State // the worst of the hub's
	Switch  Switch        // in force
}

// Decisions is all of Allowed and Denied.
func (s Stats) Decisions() (total int64) {
	for _, n := range s.Allowed {
		total += n
	}
	for _, n := range s.Denied {
		total += n
	}
	return total
}

// OpsPerDecision is how often a decision of this limiter concerned Redis; 0
// before the first. Messages are fewer, since limiters of a hub share them:
// see HubStats.MessagesPerDecision.
func (s Stats) OpsPerDecision() float64 { return ratio(s.Ops, s.Decisions()) }

func ratio(of, to int64) float64 {
	if to == 0 {
		return 0
	}
	return float64(of) / float64(to)
}

// Stats sums up. It visits every key in memory: milliseconds for 100 000. What
// the common path has decided of a key is counted when its units are taken
// back, which this does, and so do a collection of metrics and Hub.Stats.
func (l *Limiter) Stats() Stats {
	s := Stats{
		Allowed: map[hybridlimit.Source]int64{}, Denied: map[hybridlimit.Source]int64{},
		Evicted: l.store.evicted.Load(), Refused: l.store.refused.Load(),
		Fleet: l.fleet.Size(), Breaker: l.hub.worst(), Credit: l.creditNow(), Switch: l.inForce(),
	}
	l.store.each(func(e *entry) {
		s.Keys++
		owed, _, _ := e.unsettled()
		e.lock()
		s.Held += e.account.Held()
		e.unlock()
		s.Owed += owed
	})
	c := &l.count
	allowed, denied, admitted := c.tally()
	for src := range hybridlimit.NumSources {
		if n := allowed[src]; n > 0 {
			s.Allowed[hybridlimit.Source(src)] = n
		}
		if n := denied[src]; n > 0 {
			s.Denied[hybridlimit.Source(src)] = n
		}
	}
	s.Returned = c.returned.Load()
	s.Admitted, s.Paid, s.Granted = admitted-s.Returned, c.acked.Load(), c.debited.Load()
	s.Netted, s.Expired, s.Lost = c.netted.Load(), c.expired.Load(), c.lost.Load()
	s.Dropped, s.Forgiven, s.Overflow = c.dropped.Load(), c.forgiven.Load(), c.overflow.Load()
	s.Refunded = c.refunded.Load()
	s.Resynced, s.Ops = c.resynced.Load(), c.ops.Load()
	s.Overshoot, s.Overshoots = c.worst.Load(), c.indebted.Load()
	return s
}

// books is what all keys owe, less what they give back, and what they have in
// hand, as of when their words were last taken back. It takes an entry's lock
// and, of one that rests, no more than that: 100 000 keys take some ms.
func (l *Limiter) books() (owed, held int64) {
	now := l.hub.clock.Now()
	l.store.sweep(func(e *entry) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.whole == nil {
			owed += e.compact.Owed()
			held += e.compact.Held(now)
			return
		}
		owed += e.account.Owed()
		held += e.account.Held()
	})
	return owed, held
}

// creditNow is C of the limiter's own limit; 0 while N is not known.
func (l *Limiter) creditNow() int64 {
	if !l.fleet.Known(l.hub.clock.Now()) {
		return 0
	}
	return l.credit(l.plan.Load(), l.fleet.Size())
}

// HubStats is what a hub has sent.
type HubStats struct {
	Decisions int64         // of all its limiters, also those that are closed
	Messages  uint64        // top-level Redis commands: syncs, exact decisions, heartbeats
	Ops       uint64        // keys synced or asked for, again with each attempt
	Failures  uint64        // syncs, and exact decisions, without an answer
	Seen      uint64        // syncs answered at a later try that had been applied before
	Gaps      uint64        // answers showing that Redis lost an earlier sync
	Refused   uint64        // ops that Redis will never apply
	Renamed   uint64        // identities given up, because another used them
	Breaker   breaker.State // the worst, where there are several; Open also while Redis refuses the syncs of a slot
	Behind    bool          // syncs that can wait do so for longer than SyncInterval: rate_limiting.sync.behind
	Syncs     uint64        // batches of syncs, again with each attempt, and exact decisions
	SyncOps   uint64        // keys in them: SyncOps/Syncs is the mean size of a batch
	SyncTime  time.Duration // from sending them to their answers, or to giving them up, in all: see SyncMean
}

// SyncMean is how long a sync, or an exact decision, took in the mean since the
// start; 0 before the first. The difference of two Stats tells of the time
// between them: SyncTime by Syncs.
func (s HubStats) SyncMean() time.Duration {
	if s.Syncs == 0 {
		return 0
	}
	return s.SyncTime / time.Duration(s.Syncs)
}

// MessagesPerDecision is how many commands a decision has cost Redis; 0 before
// the first. It is the hub's because its limiters share messages: dividing by
// the decisions of one of them alone counts the messages of all.
func (s HubStats) MessagesPerDecision() float64 { return ratio(int64(s.Messages), s.Decisions) }

// Stats sums up.
func (h *Hub) Stats() HubStats {
	e := h.engine.Stats()
	s := HubStats{
		Decisions: h.decisions(),
		Messages:  e.Messages + h.exacts.Load() + h.beats.Load(), Ops: e.Ops + h.exacts.Load(),
		Failures: e.Failures + h.failed.Load(), Seen: e.Seen, Gaps: e.Gaps, Refused: e.Refused, Renamed: e.Renamed, Breaker: h.worst(),
		Behind: h.engine.Behind(), Syncs: h.syncs.calls.Load(), SyncOps: h.syncs.ops.Load(), SyncTime: time.Duration(h.syncs.ns.Load()),
	}
	return s
}

func (h *Hub) decisions() int64 {
	h.mu.Lock()
	total, limiters := h.decided, slices.Collect(maps.Values(h.limiters))
	h.mu.Unlock()
	for _, l := range limiters {
		total += l.decisions()
	}
	return total
}

// Name is Config.Name.
func (l *Limiter) Name() string { return l.cfg.Name }

// Limit is the limiter's own, of keys that have none of theirs.
func (l *Limiter) Limit() hybridlimit.Limit { return l.plan.Load().Limit }

// Mode is Config.Mode.
func (l *Limiter) Mode() Mode { return l.cfg.Mode }

// Hub is the hub that the limiter belongs to.
func (l *Limiter) Hub() *Hub { return l.hub }
