package account

// exactLevel is the largest distance of a level from 0: Lua counts a level in a float64.
const exactLevel = 1 << 52

// Adapt gives the key another plan, of a limit that counts. Call Begin before it. Used units stay used. As in Redis,
// the level refills at the old rate until the time at which the new limit came into force. Adapt returns the leased
// units that are lost.
func (a *Account) Adapt(old, p *Plan, now int64) (lost int64) {
	if old.Limit == p.Limit {
		return 0
	}
	a.refusal = Refusal{}
	a.Return()
	v := &a.view
	if anotherCount(old, p) {
		*v, a.used = view{}, true // of another window
		a.window = 0
		if !sameWindows(old, p) {
			for i := range a.refunds {
				a.refunds[i].at = 0
			}
		}
		return a.leaveLimit(old, p)
	}
	from := max(v.received, p.Began)
	if p.Began == 0 || p.From == FromCall {
		from = max(v.received, now)
	}
	passed := (from - v.received) / 1000
	was := old.Bucket
	if from-v.received < ledgerMemory {
		was.Cap = v.cap
	}
	if passed > exactLevel/p.Bucket.Refill { // too long for an exact level
		*v, a.used = view{}, true
		return 0
	}
	v.level, v.cap = p.convert(was.Fill(v.level, passed)+old.Low(), old), p.convert(v.cap+old.Low(), old)
	v.nextPoll, v.relook = 0, 0         // the view's proofs are about the old limit
	v.level -= passed * p.Bucket.Refill // level() adds this refill again, at the new rate
	return 0
}

// leaveLimit takes the leases out of the hand that the new limit may have no room for: those of a window, unless its
// limit is raised. Redis gets them back if it goes on to count in the same windows. leaveLimit returns the leased units
// that are lost. Redis cuts the count of this window at two Rates of the new limit. Units that came off it then would
// be admitted again, so they are lost.
func (a *Account) leaveLimit(old, p *Plan) (lost int64) {
	same := sameWindows(old, p)
	if old.Window.Period == 0 || same && p.Limit.Rate >= old.Limit.Rate {
		return a.disown()
	}
	leased := append(a.leases[:], lease{units: a.ahead.units, window: a.askedAhead})
	a.leases, a.ahead = [2]lease{}, ahead{}
	cut := old.Limit.Rate > 2*p.Limit.Rate
	for i, l := range leased {
		next := i == len(a.leases)
		switch {
		case l.units == 0:
		case same && l.window != 0 && (next || !cut):
			lost += a.refunds.add(l.units, l.window, true)
		default:
			lost += l.units
		}
	}
	return lost + a.disown()
}

// sameWindows reports whether Redis counts two limits in the same windows.
func sameWindows(old, p *Plan) bool {
	return old.Kind == p.Kind && old.Window.Period == p.Window.Period && p.Window.Period > 0 && !Static(old.Limit) && !Static(p.Limit)
}

// convert returns a level of Redis under another plan as a level above the floor of this plan.
func (p *Plan) convert(level int64, from *Plan) int64 {
	return p.Whole().Bucket.Convert(level, from.Whole().Bucket) - p.Low()
}

// anotherCount reports whether Redis counts the units of two plans apart, so that a view of one says nothing about the
// other.
func anotherCount(old, p *Plan) bool {
	return old.Kind != p.Kind || p.Window.Period > 0 || Static(old.Limit) || Static(p.Limit)
}
