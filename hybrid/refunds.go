package hybrid

// This file is what is given back lazily: units wait for the next sync, with the
// time that they were of.

// refund is units to be given back, and when they were taken, as algo.Op's
// RefundAt has it; 0: not known.
type refund struct{ units, at int64 }

// refunds is what waits to be given back: of one window, or of one kind, each.
// Of a bucket these are what was used in part, without a time, and bookings that
// were cancelled.
type refunds [2]refund

func (r *refunds) units() int64 { return r[0].units + r[1].units }

// add puts units to those of their time and returns how many are void: of three
// windows the oldest counts no longer anywhere. Bookings of a bucket go together
// by the earliest time, on the safe side.
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

// take is what goes with the next sync: the older.
func (r *refunds) take() refund {
	i := 0
	if r[0].units == 0 || r[1].units > 0 && r[1].at < r[0].at {
		i = 1
	}
	first := r[i]
	r[i] = refund{}
	return first
}
