package account

// This file has the refunds: units given back, which wait for the next sync with the time at which they were taken.

// Taken is the time and the way in which refunded units were taken.
type Taken struct {
	At     int64 // as algo.Op.RefundAt: number of the window, or µs of Redis time; 0: not known
	Ns     int64 // ns; the time at which a reservation took them without a direct call; 0: not known
	Direct bool  // Redis granted them to a direct call
}

// Refund gives back n units. It first takes them off the pending units, if these may be the same ones. The rest waits
// for the next syncs. soon is the urgency of these syncs.
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

// mayBeUnsent reports whether the units may be ones that Redis has not been told of. For the units of a reservation,
// that holds until the next sync is sent. For the units of a call, it makes no difference which units of the key are
// given back.
func (a *Account) mayBeUnsent(taken Taken) bool {
	switch {
	case taken.Direct:
		return false
	case taken.Ns == 0:
		return true
	}
	return !a.frozen && (!a.view.known() || a.view.sent <= taken.Ns)
}

// refund is units to be given back. at is the time at which they were taken, as algo.Op.RefundAt; 0: not known.
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
