package reference_test

import (
	"math/big"
	"slices"
)

// Log is a list of admissions with their times.
type Log struct {
	rate, period int64
	entries      []entry
}

type entry struct{ at, units int64 }

// Load implements Model.
func (l *Log) Load(now int64) Model {
	c := *l
	c.entries = slices.Clone(l.entries)
	if n := len(c.entries); n > 0 {
		if back := c.entries[n-1].at - now; back > slack {
			for i := range c.entries {
				c.entries[i].at -= back
			}
		}
	}
	c.entries = slices.DeleteFunc(c.entries, func(e entry) bool { return now-e.at >= l.period })
	return &c
}

// used returns the units younger than the period.
func (l *Log) used(now int64) int64 {
	sum := int64(0)
	for _, e := range l.entries {
		if now-e.at < l.period {
			sum += e.units
		}
	}
	return sum
}

// Free implements Model.
func (l *Log) Free(now int64) *big.Rat { return whole(l.rate - l.used(now)) }

// Fits implements Model.
func (l *Log) Fits(now, n, _ int64) bool { return l.used(now)+n <= l.rate }

// Delay implements Model.
func (l *Log) Delay(int64, int64) int64 { return 0 }

// Take implements Model.
func (l *Log) Take(now, n int64) {
	for _, e := range l.entries {
		if now-e.at < l.period { // no two entries have the same time, so that the list stays in order
			now = max(now, e.at+1)
		}
	}
	l.entries = append(l.entries, entry{now, n})
}

// Owe implements Model.
func (l *Log) Owe(now, n, _ int64) bool {
	if n = min(n, 2*l.rate-l.used(now)); n > 0 {
		l.Take(now, n)
	}
	return true
}

// Refund implements Model. With a time it takes the units from the entry of that time, otherwise from the oldest
// entries first.
func (l *Log) Refund(now, n, at int64) {
	for i := range l.entries {
		if e := &l.entries[i]; now-e.at < l.period && (at == 0 || at == e.at) {
			off := min(n, e.units)
			e.units, n = e.units-off, n-off
		}
	}
	l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.units == 0 })
}

// Reset implements Model.
func (l *Log) Reset(int64) { l.entries = nil }
