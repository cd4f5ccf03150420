package hybrid

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

// ConcurrencyStats counts the work of a ConcurrencyLimiter since it was made.
type ConcurrencyStats struct {
	Allowed  map[hybridlimit.Source]int64 // calls by source
	Denied   map[hybridlimit.Source]int64 // calls by source
	Admitted int64                        // permits given to calls, without SourceStatic and SourceSwitch

	Running int64 // permits that calls of this process use
	Held    int64 // permits that Redis has for this process; those of the fallback are not among them
	Waiting int64 // permits that waiting calls need
	Keys    int   // keys in memory

	// Ops counts the parts of messages to Redis about one key. They are the limiter's cost for Redis.
	Ops int64

	InvalidLimits int64         // answers of ConcurrencyConfig.LimitFor that were not valid
	Fleet         int64         // N: processes that share the limit
	Member        bool          // the process may use the permits that it holds: its heartbeat was answered in the last 1.8 s
	Breaker       breaker.State // worst state of the hub's breakers
	Switch        Switch        // the switch in force
}

// Decisions returns the sum of Allowed and Denied.
func (s ConcurrencyStats) Decisions() int64 {
	return Stats{Allowed: s.Allowed, Denied: s.Denied}.Decisions()
}

// OpsPerDecision returns Ops per decision; 0 before the first decision.
func (s ConcurrencyStats) OpsPerDecision() float64 { return ratio(s.Ops, s.Decisions()) }

// Stats returns the counts so far. It visits every key in memory.
func (l *ConcurrencyLimiter) Stats() ConcurrencyStats {
	b := l.base
	l.flush()
	of := b.Stats()
	s := ConcurrencyStats{
		Allowed: of.Allowed, Denied: of.Denied, Admitted: of.Admitted, Keys: l.Len(), Ops: of.Ops, InvalidLimits: of.InvalidLimits,
		Fleet: of.Fleet, Member: b.hub.permits.standing.Load().Live(b.clock.Now()), Breaker: of.Breaker, Switch: of.Switch,
	}
	s.Running, s.Held, s.Waiting = l.sums()
	return s
}

// sums returns the permits that calls use, that Redis has for this process, and that waiting calls need.
func (l *ConcurrencyLimiter) sums() (running, held, waiting int64) {
	l.each(func(e *permitEntry) {
		e.shard.mu.Lock()
		running, held, waiting = running+e.Used(), held+e.Booked(), waiting+e.Waiting()
		e.shard.mu.Unlock()
	})
	return running, held, waiting
}
