package account

// This file is units that are given back: they wait for the next sync, with the time at which they were taken.

// Taken is when and how units were taken that are given back now.
type Taken struct {
	At     int64 // as algo.Op.RefundAt: number of the window, or µs of Redis time; 0: not known
	Ns     int64 // when they were taken of what was in hand; 0: not known
	Direct bool  // Redis gave them to a direct call
}

// Refund gives back n units: off what is pending, where that may be the same units, and beyond that with the next syncs. soon is
// how soon these should go.
func (a *Account) Refund(c *Conditions, n int64, taken Taken, soon Sync) (Sync, Books) {
	left := n
	if a.mayBeUnsent(taken) && (!c.windowed() || taken.At == 0 || a.window == 0 || a.window == taken.At) {
		left -= min(n, a.pending)
		a.pending -= n - left
	}
	b := Books{Returned: n}
	if left > 0 {
		b.Refunded = a.refunds.add(left, taken.At, c.windowed())
	}
	if a.refunds.units() == 0 {
		return SyncNot, b
	}
	return soon, b
}

// mayBeUnsent reports whether Redis need not have heard of the units. Of a booking that is so until the next sync. Of a call it
// makes no difference which of its key's units are given back.
func (a *Account) mayBeUnsent(taken Taken) bool {
	switch {
	case taken.Direct:
		return false
	case taken.Ns == 0:
		return true
	}
	return !a.frozen && (!a.view.known || a.view.sent <= taken.Ns)
}

// refund is units to be given back, and when they were taken, as algo.Op.RefundAt has it; 0: not known.
type refund struct{ units, at int64 }

// refunds is the units that wait to be given back: of one window, or of one kind, each. Of a bucket the kinds are units that were
// used in part, without a time, and cancelled bookings.
type refunds [2]refund

func (r *refunds) units() int64 { return r[0].units + r[1].units }

// add puts units to those of their time and returns how many are void: the oldest of three windows counts in none any more.
// Cancelled bookings of a bucket are put together, with the earliest time, which is the safe side.
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

// take is the units that go with the next sync: the older.
func (r *refunds) take() refund {
	i := 0
	if r[0].units == 0 || r[1].units > 0 && r[1].at < r[0].at {
		i = 1
	}
	first := r[i]
	r[i] = refund{}
	return first
}
