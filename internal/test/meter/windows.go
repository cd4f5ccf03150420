package meter

import "math"

// Windows compares a fixed or sliding window with its promise, in the windows of Redis's clock.
//
// A fixed window admits Rate, and an excess is carried into the next window. So the excess is over Rate·m units in any
// m windows in a row, as the excess of a bucket is over all intervals. An excess over Rate in each window by itself
// would be a weaker measure: a limiter could have it in every window.
//
// A sliding window's estimate, cur + prev·(1−f), is at most Rate at any time. It falls between admissions, so it is
// checked at each admission.
type Windows struct {
	sliding      bool
	rate, period int64 // period in ns
	win          int64 // number of the current window
	prev, cur    int64 // admitted in the previous window, and in the current one
	before       int64 // fixed window: carried into the previous window
	worst        float64
}

// roll moves to the window of a time. If the clock stepped back before the last window, that window continues. If it
// stepped back by more than a second, the window moves with the clock: a new start would forgive all use.
func (m *Windows) roll(at int64) {
	if m.win*m.period-at > clockSlack {
		m.win = at / m.period
	}
	for win := at / m.period; m.win < win; {
		if m.before == 0 && m.prev == 0 && m.cur == 0 {
			m.win = win
			break
		}
		m.before, m.prev, m.cur = m.carried(), m.cur, 0
		m.win++
	}
}

// carried returns the count with which a fixed window starts.
func (m *Windows) carried() int64 {
	if m.sliding {
		return 0
	}
	return max(0, m.before+m.prev-m.rate)
}

// used returns the units that count against Rate.
func (m *Windows) used(at int64) float64 {
	if !m.sliding {
		return float64(m.carried() + m.cur)
	}
	elapsed := max(at-m.win*m.period, 0)
	return float64(m.cur) + float64(m.prev)*(float64(m.period-elapsed)/float64(m.period))
}

// Admit implements Meter.
func (m *Windows) Admit(at, n int64) {
	m.roll(at)
	m.cur += n
	m.worst = math.Max(m.worst, m.used(at)-float64(m.rate))
}

// Late implements Meter. Units of a window before the previous one count in the current window.
func (m *Windows) Late(now, at, n int64) {
	m.roll(now)
	if at/m.period == m.win-1 {
		m.prev += n
	} else {
		m.cur += n
	}
}

// Holds implements Meter.
func (m *Windows) Holds(at, n int64) bool {
	m.roll(at)
	return m.used(at)+float64(n) <= float64(m.rate)
}

// Excess implements Meter.
func (m *Windows) Excess() float64 { return m.worst }

// Seen implements Meter.
func (m *Windows) Seen(int64) Meter {
	c := *m
	return &c
}
