package hybrid

import (
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
)

// decisions returns the number of decisions so far.
func (l *base) decisions() (total int64) {
	if l.calls != nil {
		l.calls.in.Flush()
		return l.calls.in.Count.Decisions()
	}
	if l.leased != nil {
		return l.leased.in.Count.Decisions()
	}
	for _, v := range l.rates.views {
		v.terms.Drain()
		total += v.terms.Count.Decisions()
	}
	return total
}

// bySource returns counts by source, without those that are 0.
func bySource(counts [adapter.NumSources]int64) map[hybridlimit.Source]int64 {
	out := map[hybridlimit.Source]int64{}
	for src, n := range counts {
		if n > 0 {
			out[hybridlimit.Source(src)] = n
		}
	}
	return out
}

// Stats counts the work of a limiter since it was made. Redis has debited Paid + Granted - Refunded for it. At any
// quiet moment this holds to the unit:
//
//	Paid + Granted - Refunded = Admitted + Expired + Held + Lost - Owed - Dropped - Forgiven
//
// A call that owes nothing and wants no lease is asked for in a message that is sent once, without an envelope. So is a
// direct call. If there is no answer, Redis may have debited the units of that call, and no caller gets them. Granted
// does not contain them. Uncertain is the largest number of such units.
type Stats struct {
	Allowed   map[hybridlimit.Source]int64 // decisions by source
	Denied    map[hybridlimit.Source]int64 // decisions by source
	Admitted  int64                        // units admitted, without SourceStatic and SourceSwitch, which no limit counts
	Paid      int64                        // owed units that Redis acknowledged
	Granted   int64                        // units that Redis granted to callers or leased
	Held      int64                        // leased units in hand, and those on their way back to Redis
	Owed      int64                        // units admitted that Redis has not acknowledged, minus units given back
	Netted    int64                        // owed units that were paid from a grant
	Expired   int64                        // leased units that expired unspent
	Lost      int64                        // units granted too late or to callers that had gone, or returned too late
	Dropped   int64                        // owed units that Redis never learns of
	Uncertain int64                        // units of calls that were sent to Redis once and had no answer; Redis may have debited them
	Forgiven  int64                        // units that the fallback admitted and that had refilled when Redis came back
	Returned  int64                        // units that callers gave back; Admitted does not contain them
	Refunded  int64                        // units that Redis has taken back: of Returned, and of leases that were not spent
	Overflow  int64                        // fallback decisions for keys that found no memory
	Resynced  int64                        // keys synced because Redis had lost its state, or might have

	// Ops counts syncs of keys, and direct calls: messages to Redis for one call. They are the limiter's cost for
	// Redis. Repeated attempts to send a sync are not counted.
	Ops int64
	// Overshoot is the largest debt in an answer since the start, in units rounded up: the units that the fleet had
	// admitted beyond the limit. Where the guarantees of this package hold, it is at most (N-1)·C plus the effect of
	// clock drift. C is the largest value that it has had.
	Overshoot int64
	// Overshoots counts the ops whose answer showed a debt. Every sync finds the same debt until it is repaid.
	Overshoots int64

	// Observed counts the calls of spend.Observe that told of use of which this process did not know. The others cost
	// no message.
	Observed int64

	Restored        int64 // keys of which Config.Restore has told Redis used units
	RestoreFailures int64 // questions to Config.Restore without an answer that Redis has heard

	// InvalidLimits counts the answers of Config.LimitFor that were not valid, so that a key in memory kept its limit.
	InvalidLimits int64

	Keys    int           // keys in memory
	Evicted uint64        // keys forgotten
	Refused uint64        // keys that were not kept, because memory was full of keys that owe
	Fleet   int64         // N: processes that share the limit
	Credit  int64         // C of the limiter's own limit; 0 while N is not known
	Breaker breaker.State // worst state of the hub's breakers
	Switch  Switch        // the switch in force
}

// Decisions returns the sum of Allowed and Denied.
func (s Stats) Decisions() (total int64) {
	for _, n := range s.Allowed {
		total += n
	}
	for _, n := range s.Denied {
		total += n
	}
	return total
}

// OpsPerDecision returns Ops per decision of this limiter; 0 before the first decision. There are fewer messages than
// ops, because the limiters of a hub share messages: see HubStats.MessagesPerDecision.
func (s Stats) OpsPerDecision() float64 { return ratio(s.Ops, s.Decisions()) }

func ratio(of, to int64) float64 {
	if to == 0 {
		return 0
	}
	return float64(of) / float64(to)
}

// Stats returns the counts so far. It visits every key in memory, which takes milliseconds for 100 000 keys. The fast
// path's decisions for a key are counted when its budget is taken back. Stats takes all budgets back. So do a
// collection of metrics and Hub.Stats.
func (l *Limiter) Stats() Stats {
	s := Stats{
		Evicted: l.terms.Store.Evicted.Load(), Refused: l.terms.Store.Refused.Load(),
		Fleet: l.party.Size(), Breaker: l.hub.worst(), Credit: l.terms.CreditNow(), Switch: Switch(l.control.Switch()),
	}
	l.terms.Store.Each(func(e *keys.Entry) {
		s.Keys++
		owed, _, _ := e.Unsettled()
		e.Lock()
		s.Held += e.Account.Leased()
		e.Unlock()
		s.Owed += owed
	})
	c := &l.terms.Count
	allowed, denied, admitted := c.Tally()
	s.Allowed, s.Denied = bySource(allowed), bySource(denied)
	s.Returned = c.Returned.Load()
	s.Admitted, s.Paid, s.Granted = admitted-s.Returned, c.Acked.Load(), c.Debited.Load()
	s.Netted, s.Expired, s.Lost = c.Netted.Load(), c.Expired.Load(), c.Lost.Load()
	s.Dropped, s.Forgiven, s.Overflow = c.Dropped.Load(), c.Forgiven.Load(), c.Overflow.Load()
	s.Refunded, s.Uncertain = c.Refunded.Load(), c.Uncertain.Load()
	s.Observed, s.Restored, s.RestoreFailures = c.Observed.Load(), c.Restored.Load(), c.Unrestored.Load()
	s.Resynced, s.Ops, s.InvalidLimits = c.Resynced.Load(), c.Ops.Load(), c.BadLimits.Load()
	s.Overshoot, s.Overshoots = c.Worst.Load(), c.Indebted.Load()
	return s
}

// HubStats counts the traffic of a hub.
type HubStats struct {
	Decisions int64         // of all its limiters, closed ones included
	Messages  uint64        // top-level Redis commands: syncs, direct calls, heartbeats
	Ops       uint64        // keys synced or asked for, counted again with each attempt
	Failures  uint64        // syncs and direct calls without an answer
	Seen      uint64        // syncs that Redis had applied before the attempt that was answered
	Gaps      uint64        // answers showing that Redis lost an earlier sync
	Refused   uint64        // ops that Redis will never apply
	Renamed   uint64        // identities given up, because another process used them
	Breaker   breaker.State // the worst if there are several; also Open while Redis refuses the syncs of a tag
	Behind    bool          // syncs that can wait, wait for longer than SyncInterval: rate_limiting.sync.behind
	Syncs     uint64        // batches of syncs, counted again with each attempt, and direct calls
	SyncOps   uint64        // keys in them: SyncOps/Syncs is the mean size of a batch
	SyncTime  time.Duration // total time from sending to the answer, or to giving up: see SyncMean
}

// SyncMean returns the mean time of a sync or a direct call since the start; 0 before the first. For the mean of
// an interval, take two HubStats and divide the difference of SyncTime by the difference of Syncs.
func (s HubStats) SyncMean() time.Duration {
	if s.Syncs == 0 {
		return 0
	}
	return s.SyncTime / time.Duration(s.Syncs)
}

// MessagesPerDecision returns the mean number of Redis commands per decision; 0 before the first decision. It is a
// value of the hub, because its limiters share messages: the decisions of one limiter must not be compared with the
// messages of all.
func (s HubStats) MessagesPerDecision() float64 { return ratio(int64(s.Messages), s.Decisions) }

// Stats returns the counts so far.
func (h *Hub) Stats() HubStats {
	e := h.engine.Stats()
	s := HubStats{
		Decisions: h.decisions(),
		Messages:  e.Messages + h.direct.Sent.Load() + h.heart.Messages.Load() + h.permits.Messages.Load() + h.leases.Messages.Load(),
		Ops:       e.Ops + h.direct.Sent.Load() + h.permits.Ops.Load() + h.leases.Ops.Load(),
		Failures:  e.Failures + h.direct.Failed.Load() + h.permits.Failed.Load() + h.leases.Failed.Load(),
		Seen:      e.Seen, Gaps: e.Gaps, Refused: e.Refused, Breaker: h.worst(),
		Renamed: e.Renamed + h.permits.Renames.Load() + h.leases.Renames.Load(),
		Behind:  h.engine.Behind(), Syncs: h.syncs.Calls.Load(), SyncOps: h.syncs.Ops.Load(), SyncTime: time.Duration(h.syncs.Ns.Load()),
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

// attributes returns the attributes of the series of a limiter, or of one of its classes.
func attributes(l *Limiter) []attribute.KeyValue {
	of := []attribute.KeyValue{tell.AttrPolicy.String(l.cfg.Name)}
	if l.control.Class.Name != "" {
		of = append(of, tell.AttrClass.String(l.control.Class.Name))
	}
	return of
}

// observe reports all values of a hub and its limiters.
func (h *Hub) observe(o metric.Observer, in *tell.Instruments) {
	s, hub := h.Stats(), metric.WithAttributeSet(h.metrics.Hub)
	o.ObserveInt64(in.Messages, int64(s.Messages), hub)
	o.ObserveInt64(in.Failures, int64(s.Failures), hub)
	o.ObserveInt64(in.Gaps, int64(s.Gaps), hub)
	o.ObserveInt64(in.Unapplied, int64(s.Refused), hub)
	o.ObserveInt64(in.Breaker, int64(s.Breaker), hub)
	late := int64(0)
	if s.Behind {
		late = 1
	}
	o.ObserveInt64(in.Late, late, hub)
	if h.permits.Awake() {
		member := int64(0)
		if h.permits.Live() {
			member = 1
		}
		o.ObserveInt64(in.Member, member, hub)
	}
	for _, l := range h.all() {
		if l.calls != nil {
			l.calls.observe(o, in)
			continue
		}
		if l.leased != nil {
			l.leased.observe(o, in)
			continue
		}
		for _, v := range l.rates.views {
			v.observe(o, in)
		}
	}
}

// observe reports what all limiters have. h.Stats has drained the budgets. It returns the units that were admitted.
func (l *base) observe(
	o metric.Observer, in *tell.Instruments, c *tell.Counts, may func(hybridlimit.Source) decides, of func(...attribute.KeyValue) metric.MeasurementOption,
) int64 {
	allowed, denied, admitted := c.Tally()
	for i := range adapter.NumSources {
		src, may := tell.AttrSource.String(hybridlimit.Source(i).String()), may(hybridlimit.Source(i))
		if n := allowed[i]; n > 0 || may.allow {
			o.ObserveInt64(in.Decisions, n, of(tell.AttrResult.String("allowed"), src))
		}
		if n := denied[i]; n > 0 || may.deny {
			o.ObserveInt64(in.Decisions, n, of(tell.AttrResult.String("denied"), src))
		}
	}
	o.ObserveInt64(in.Invalid, c.BadLimits.Load(), of())
	o.ObserveInt64(in.Unrestored, c.Unrestored.Load(), of())
	o.ObserveInt64(in.Ops, c.Ops.Load(), of())
	o.ObserveInt64(in.Fleet, l.party.Size(), of())
	o.ObserveInt64(in.Switched, int64(l.control.Switch()), of())
	o.ObserveInt64(in.Limited, int64(l.control.Source()), of())
	return admitted
}

// with returns a function that adds attributes to those of one value.
func with(own ...attribute.KeyValue) func(...attribute.KeyValue) metric.MeasurementOption {
	return func(kv ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(kv, own...)...)
	}
}

// observe reports the values of a class of a limiter.
func (l *Limiter) observe(o metric.Observer, in *tell.Instruments) {
	c, of := &l.terms.Count, with(attributes(l)...)
	admitted := l.base.observe(o, in, c, l.mayDecide, of)
	o.ObserveInt64(in.Units, admitted, of(tell.AttrFate.String("admitted")))
	o.ObserveInt64(in.Units, c.Acked.Load(), of(tell.AttrFate.String("paid")))
	o.ObserveInt64(in.Units, c.Debited.Load(), of(tell.AttrFate.String("granted")))
	o.ObserveInt64(in.Units, c.Expired.Load(), of(tell.AttrFate.String("expired")))
	o.ObserveInt64(in.Units, c.Lost.Load(), of(tell.AttrFate.String("lost")))
	o.ObserveInt64(in.Units, c.Uncertain.Load(), of(tell.AttrFate.String("uncertain")))
	o.ObserveInt64(in.Units, c.Dropped.Load(), of(tell.AttrFate.String("dropped")))
	o.ObserveInt64(in.Units, c.Forgiven.Load(), of(tell.AttrFate.String("forgiven")))
	o.ObserveInt64(in.Units, c.Returned.Load(), of(tell.AttrFate.String("returned")))
	o.ObserveInt64(in.Units, c.Refunded.Load(), of(tell.AttrFate.String("refunded")))
	o.ObserveInt64(in.Evictions, int64(l.terms.Store.Evicted.Load()), of())
	o.ObserveInt64(in.Refusals, int64(l.terms.Store.Refused.Load()), of())
	o.ObserveInt64(in.Overflow, c.Overflow.Load(), of())
	owed, held := l.terms.Books()
	o.ObserveInt64(in.Owed, owed, of())
	o.ObserveInt64(in.Held, held, of())
	o.ObserveInt64(in.Resyncs, c.Resynced.Load(), of())
	o.ObserveInt64(in.Credit, l.terms.CreditNow(), of())
	o.ObserveInt64(in.Keys, l.terms.Store.Keys.Load(), of())
}

// decides lists the results that a source can have.
type decides struct{ allow, deny bool }

// mayDecide returns the results that a source can have with this limiter. Their series are exported from the start
// with the value 0, so that the first decision is visible as a rise. These are at most eleven series of a policy. The
// series of Unlimited, and of spend.Pause, begin with the first decision.
func (l *Limiter) mayDecide(s hybridlimit.Source) decides {
	exactly := l.control.Exactly(l.control.Plan())
	switch s {
	case hybridlimit.SourceLease:
		return decides{allow: !exactly}
	case hybridlimit.SourceCredit:
		return decides{allow: !exactly && l.terms.GivesCredit()}
	case hybridlimit.SourceRedis, hybridlimit.SourceFallback, hybridlimit.SourceSwitch:
		return decides{true, true}
	case hybridlimit.SourceDenyCache:
		return decides{deny: !l.control.Exact()}
	case hybridlimit.SourceTimeout:
		return decides{deny: l.Mode() == ModeStrict}
	case hybridlimit.SourceStatic: // a cost above the burst
		return decides{deny: true}
	case hybridlimit.SourcePause:
		return decides{deny: l.cfg.Penalty.After > 0}
	}
	return decides{}
}

// logJoint is keys.Terms.Denied for a call under several limits. It logs once, for the key that denied. The second loop
// is for limits that count nothing, which have no part.
func logJoint(asks []joint, parts []*part, res *hybridlimit.Result) {
	for _, p := range parts {
		if p.Limiter.cfg.Name == res.Policy && p.res.Source == res.Source && !p.res.Allowed {
			p.Limiter.terms.Denied(p.Key, p.plan, p.N, res)
			return
		}
	}
	for _, a := range asks {
		if a.Limiter.cfg.Name == res.Policy {
			a.Limiter.terms.Denied(a.Key, nil, a.N, res)
			return
		}
	}
}
