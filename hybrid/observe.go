package hybrid

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit"
)

// attributes returns the attributes of the series of a limiter, or of one of its classes.
func (l *Limiter) attributes() []attribute.KeyValue {
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
	if h.concurrent() {
		member := int64(0)
		if h.permits.standing.Load().Live(h.clock.Now()) {
			member = 1
		}
		o.ObserveInt64(in.Member, member, hub)
	}
	for _, l := range h.views() {
		own := l.attributes()
		of := func(kv ...attribute.KeyValue) metric.MeasurementOption {
			return metric.WithAttributes(append(kv, own...)...)
		}
		c := &l.terms.Count
		allowed, denied, admitted := c.Tally() // h.Stats above has drained the budgets
		for i := range hybridlimit.NumSources {
			src := tell.AttrSource.String(hybridlimit.Source(i).String())
			may := l.mayDecide(hybridlimit.Source(i))
			if n := allowed[i]; n > 0 || may.allow {
				o.ObserveInt64(in.Decisions, n, of(tell.AttrResult.String("allowed"), src))
			}
			if n := denied[i]; n > 0 || may.deny {
				o.ObserveInt64(in.Decisions, n, of(tell.AttrResult.String("denied"), src))
			}
		}
		o.ObserveInt64(in.Invalid, c.BadLimits.Load(), of())
		o.ObserveInt64(in.Ops, c.Ops.Load(), of())
		o.ObserveInt64(in.Fleet, l.party.Size(), of())
		o.ObserveInt64(in.Switched, int64(l.control.Switch()), of())
		o.ObserveInt64(in.Limited, int64(l.control.Source()), of())
		if l.flight != nil {
			running, held, waiting := l.flight.sums()
			o.ObserveInt64(in.Running, running, of())
			o.ObserveInt64(in.Booked, held, of())
			o.ObserveInt64(in.Waiting, waiting, of())
			o.ObserveInt64(in.Keys, int64(l.flight.Len()), of())
			continue
		}
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
}

// decides lists the results that a source can have.
type decides struct{ allow, deny bool }

// mayDecide returns the results that a source can have with this limiter. Their series are exported from the start
// with the value 0, so that the first decision is visible as a rise. These are at most ten series of a policy. The
// series of Unlimited is the exception: it begins with the first admission.
func (l *Limiter) mayDecide(s hybridlimit.Source) decides {
	exactly := l.control.Exactly(l.control.Plan())
	if l.flight != nil && (s == hybridlimit.SourceLease || s == hybridlimit.SourceTimeout) {
		return decides{allow: s == hybridlimit.SourceLease, deny: s == hybridlimit.SourceTimeout}
	}
	switch s {
	case hybridlimit.SourceLease:
		return decides{allow: !exactly}
	case hybridlimit.SourceCredit:
		return decides{allow: !exactly && l.terms.GivesCredit()}
	case hybridlimit.SourceRedis, hybridlimit.SourceFallback, hybridlimit.SourceSwitch:
		return decides{true, true}
	case hybridlimit.SourceDenyCache:
		return decides{deny: !l.control.Exact() && l.flight == nil}
	case hybridlimit.SourceTimeout:
		return decides{deny: l.Mode() == ModeStrict}
	case hybridlimit.SourceStatic: // a cost above the burst
		return decides{deny: true}
	}
	return decides{}
}
