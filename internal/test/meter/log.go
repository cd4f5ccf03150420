package meter

import "slices"

// Log compares a sliding log with its promise: at most Rate units in any trailing Period. It counts whole µs, as Redis
// does. A log may therefore treat a unit as a Period old up to half a µs too early.
type Log struct {
	rate, period int64 // period in µs
	entries      []entry
	sum, worst   int64 // units
}

type entry struct{ at, n int64 } // µs

// trim removes the entries that are a Period old and returns the time in µs. After a large step of the clock back, the
// entries move with the clock. After a small one, the time stands still at the last entry.
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

// Admit implements Meter.
func (m *Log) Admit(at, n int64) {
	m.entries = append(m.entries, entry{m.trim(at), n})
	m.sum += n
	m.worst = max(m.worst, m.sum-m.rate)
}

// Late implements Meter. The units count from now on.
func (m *Log) Late(now, _, n int64) { m.Admit(now, n) }

// Holds implements Meter.
func (m *Log) Holds(at, n int64) bool {
	m.trim(at)
	return m.sum+n <= m.rate
}

// Excess implements Meter.
func (m *Log) Excess() float64 { return float64(m.worst) }

// Seen implements Meter.
func (m *Log) Seen(int64) Meter {
	c := *m
	c.entries = slices.Clone(m.entries)
	return &c
}
