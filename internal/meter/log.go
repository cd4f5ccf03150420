package meter

import (
	"slices"

	"github.com/hybridlimit/hybridlimit"
)

// Log holds a sliding log against what it promises: at most Rate units in any
// trailing Period. It counts whole µs, as Redis does: half a µs before a unit
// is a Period old, a log may take it for that.
type Log struct {
	rate, period int64 // period in µs
	entries      []entry
	sum, worst   int64 // units
}

type entry struct{ at, n int64 } // µs

func newLog(l hybridlimit.Limit) *Log { return &Log{rate: l.Rate, period: l.Period.Microseconds()} }

// trim leaves out what is a Period old, and returns the time in µs. A clock
// that stepped back takes the entries along, or waits for the last.
func (m *Log) trim(at int64) int64 {
	at /= 1000
	if n := len(m.entries); n > 0 {
		last := m.entries[n-1].at
		if back := last - at; back > clockSlack/1000 {
			for i := range m.entries {
				m.entries[i].at -= back
			}
		} else {
			at = max(at, last)
		}
	}
	for len(m.entries) > 0 && at-m.entries[0].at >= m.period {
		m.sum -= m.entries[0].n
		m.entries = m.entries[1:]
	}
	return at
}

// Admit is for Meter.
func (m *Log) Admit(at, n int64) {
	m.entries = append(m.entries, entry{m.trim(at), n})
	m.sum += n
	m.worst = max(m.worst, m.sum-m.rate)
}

// Late is for Meter: it counts from now on.
func (m *Log) Late(now, _, n int64) { m.Admit(now, n) }

// Holds is for Meter.
func (m *Log) Holds(at, n int64) bool {
	m.trim(at)
	return m.sum+n <= m.rate
}

// Excess is for Meter.
func (m *Log) Excess() float64 { return float64(m.worst) }

// Seen is for Meter.
func (m *Log) Seen(int64) Meter {
	c := *m
	c.entries = slices.Clone(m.entries)
	return &c
}
