package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the parts of an Account that have an arithmetic of their own.

// lease is units that are debited in Redis and held in this process. Redis decides their number: algo/lease.go.
type lease struct {
	units  int64
	end    int64 // ns; from then on the units must not be spent
	booked bool  // Redis's ledger holds the units, so they can be renewed and returned
	window int64 // of a window: its number, in which the units can be returned; 0: they cannot

	// The next fields are set for a queue: see block.
	next int64 // ns; the time at which its next unit is served
	each int64 // ns for one unit; 0: these are not slots
}

// block returns a lease of a queue: slots from next on, a period of time in which the queue serves this process alone.
// Calls take units in order from the beginning of the block. A part of the block that passes before a call takes it is
// lost. There is no credit: only Redis knows the time at which a call is served.
func block(units, next, each int64) lease {
	return lease{units: units, next: next, each: each, end: next + units*each}
}

// pass drops the slots in which no call can be served any more, and returns their number. A unit needs the time of a
// whole slot before the end of the block.
func (l *lease) pass(now int64) int64 {
	lost := l.passed(now)
	l.next = max(l.next, now)
	l.units -= lost
	return lost
}

// passed returns the number of slots that pass would drop.
func (l *lease) passed(now int64) int64 {
	return l.units - min(l.units, max(0, l.end-max(l.next, now))/l.each)
}

// take takes n units from a block that has as many, and returns the ns until they are served.
func (l *lease) take(n, now int64) (delay int64) {
	l.next = max(l.next, now)
	delay = l.next - now
	l.next += n * l.each
	l.units -= n
	return delay
}

// booking is the units of this process in Redis's ledger. The next sync tells Redis how many of them are still held.
type booking struct {
	gen  int64 // generation of the ledger; 0: the ledger holds nothing
	had  int64 // units
	kept int64 // units that the sync in flight asks to renew
	back int64 // units that the sync in flight returns
	over int64 // units whose life is over, which the next sync returns
}

// ahead is a lease of the next window. Its units cannot be spent before that begins. The number of the window is
// Account.askedAhead. Without it, each process would wait for Redis at the begin of each window.
type ahead struct {
	units int64
	begin int64 // ns; the latest time at which the window may begin
	end   int64 // ns; from then on the units must not be spent
}

// place is a window of Redis's clock, as far as this process knows it.
type place struct {
	window int64 // its number; 0: not known
	ends   int64 // ns; the earliest time at which it may be over
}

// view is the last answer of Redis for the key.
type view struct {
	level     int64 // sub-units
	cap       int64 // sub-units to which the level refills while the ledger holds its units
	nextPoll  int64 // ns; the earliest time at which this process may ask again
	refill    int64 // of a window: sub-units that come back each µs, until its end; of a bucket: algo.State.Span
	ends      int64 // of a window: ns; the earliest time at which it may be over, and the view with it; 0: never
	window    int64 // the number of that window
	sent      int64 // ns; the op was sent. Redis answered later.
	received  int64 // ns; the answer was received. Redis answered earlier.
	redisAt   int64 // µs of Redis time, opaque here; 0: nothing is known
	createdAt int64 // of the state in Redis, µs of Redis time; 0: Redis needed no state
	relook    int64 // ns; until then the view may prove a denial
}

func (v *view) known() bool { return v.redisAt != 0 }

// Refusal is Redis's last answer to a direct call of a log: N units do not exist before Until.
type Refusal struct {
	N      int64 // units; 0: there was no answer; noRefusal: the call was granted
	Until  int64 // ns
	Relook int64 // ns; the time until which the refusal may be used
	Left   int64 // units that were left
	Reset  int64 // ns; the time at which the key is unused again
}

// Holds reports whether the refusal denies n units at now.
func (r Refusal) Holds(n, now int64) bool {
	return r.N > 0 && n >= r.N && now < min(r.Until, r.Relook)
}

// noRefusal is the N of a Refusal that denies nothing.
const noRefusal = 1<<63 - 1

// Taken is the time and the way in which refunded units were taken.
type Taken struct {
	At     int64 // as algo.Op.RefundAt: number of the window, or µs of Redis time; 0: not known
	Ns     int64 // ns; the time at which a reservation took them without a direct call; 0: not known
	Direct bool  // Redis granted them to a direct call
}

// refund is units to be given back, or units of a window that are owed. at is the time at which they were taken, as
// algo.Op.RefundAt; 0: not known.
type refund struct{ units, at int64 }

// refunds is the units that wait to be given back. Each element has the units of one window, or of one kind. A bucket
// has two kinds: unused units of a call, without a time, and cancelled reservations.
type refunds [2]refund

func (r *refunds) units() int64 { return r[0].units + r[1].units }

// add adds units to the element of their time and returns the number of void units: the oldest of three windows no
// longer counts. Cancelled reservations of a bucket are added up under the earliest time, which is the safe side.
func (r *refunds) add(units, at int64, windowed bool) (void int64) {
	for i := range r {
		switch o := &r[i]; {
		case o.units == 0:
			*o = refund{units, at}
			return 0
		case o.at == at, !windowed && o.at > 0 && at > 0:
			o.units, o.at = o.units+units, min(o.at, at)
			return 0
		}
	}
	oldest := 0
	if r[1].at < r[0].at {
		oldest = 1
	}
	if at < r[oldest].at {
		return units
	}
	void = r[oldest].units
	r[oldest] = refund{units, at}
	return void
}

// move gives the units of window here to the present window of another period, in which Redis counts them now. It
// returns the number of the other units, which are void: no window of that period has counted them for certain.
func (r *refunds) move(here int64) (void int64) {
	for i := range r {
		o := &r[i]
		if o.at != 0 && o.at != here {
			void += o.units
			*o = refund{}
		}
		o.at = 0
	}
	return void
}

// take removes and returns the units for the next sync: the older ones.
func (r *refunds) take() refund {
	i := 0
	if r[0].units == 0 || r[1].units > 0 && r[1].at < r[0].at {
		i = 1
	}
	first := r[i]
	r[i] = refund{}
	return first
}

// outage is what an account knows of a period without Redis.
type outage struct {
	began    bool  // the share was lowered to the level of the view
	admitted int64 // units admitted and not yet owed
	past     int64 // of a window: the part of admitted from earlier windows
	ends     int64 // of a window: ns; the end of the window of the other units
}

// note counts n admitted units.
func (o *outage) note(f *Fallback, n, now int64) {
	if f.Window > 0 && now >= o.ends {
		o.past = o.admitted
		if o.ends = f.Ends; o.ends <= now {
			o.ends = now + f.Window // the latest possible end
		}
	}
	o.admitted += n
}

// settle ends a period of fallback and returns the owed units. They are the smaller of two numbers: the units that were
// admitted, and the units that the share lacks now. Units that have been refilled since are forgiven: Redis would also
// have refilled them. In a window, no unit comes back before the end of the window, and then all units are forgiven. So
// the units admitted in the current window are owed. Classes have one share, so each may owe what it lacks: together at
// most the units that they admitted.
func (o *outage) settle(f *Fallback, now int64) int64 {
	if o.admitted == 0 {
		return 0
	}
	owed := int64(0)
	if f.Window == 0 {
		lacks := int64(math.Ceil(float64(f.Burst) - f.Share.Left(f.Size, now) - 1e-6))
		owed = min(o.admitted, max(lacks, 0))
	} else if now < o.ends {
		owed = max(0, o.admitted-o.past) // a lease may have paid for some
	}
	o.admitted, o.past = 0, 0
	return owed
}

// paced is the use of the leases of a window, or of those in the ledger.
type paced struct {
	pace  float64 // units a ns: the demand for which the leases were taken
	spent int64   // units, since the time since
	since int64   // ns
}

// pacedFor returns the use of leases that are taken at now. Where a key has plenty of units, Redis adds up to 1.5
// standard deviations to a lease.
func pacedFor(units, now, end int64) paced {
	life := max(1, min(end-now, algo.WindowLease*1000))
	return paced{pace: max(0, float64(units)-math.Sqrt(float64(units))) / float64(life), since: now}
}

// idleUses is the number of units that an idle process would have spent since its last use, by the pace of its leases.
const idleUses = 5

// enough is the number of units that should have been spent for a look to be sure that the demand is the same.
const enough = 20

// surplus returns how many of the units are more than the process will spend in rest (ns). Counts of calls vary. If
// fewer were spent than by the pace of the leases, by two standard deviations, the demand has become smaller: units for
// the pace since then stay, and a standard deviation more.
func (p *paced) surplus(units, rest, now int64) int64 {
	span := float64(now - p.since)
	due := p.pace * span
	if float64(p.spent) >= due-2*math.Sqrt(due) {
		if due >= enough {
			p.spent, p.since = 0, now // a later change of the demand is then seen sooner
		}
		return 0
	}
	mu := float64(p.spent+1) * float64(rest) / span
	if keep := int64(math.Ceil(mu + math.Sqrt(mu))); keep < units-units/4 { // fewer are not worth a message
		return units - keep
	}
	return 0
}
