package meter

import (
	"math"

	"github.com/hybridlimit/hybridlimit"
)

// Windows holds a fixed or sliding window against what it promises, in the
// windows of Redis's clock.
//
// A fixed window admits Rate, and what is beyond that is carried into the next
// one: so the excess is over Rate·m units in any m windows in a row, as that of
// a bucket is over all intervals, and not over Rate in each by itself, of which
// a limiter could have as much in every window.
//
// A sliding window's estimate, cur + prev·(1−f), is at most Rate: at any time,
// so at each admission, as it falls in between.
type Windows struct {
	sliding      bool
	rate, period int64 // period in ns
	win          int64 // the current window's number
	prev, cur    int64 // admitted in the one before, and in this one
	before       int64 // of a fixed one: carried into the one before
	worst        float64
}

func newWindows(l hybridlimit.Limit) *Windows {
	return &Windows{sliding: l.Algorithm == hybridlimit.AlgSlidingWindow, rate: l.Rate, period: int64(l.Period)}
}

// roll goes on to the window of a time. While a clock that stepped back is
// before the last window, that one goes on; by more than a second, it takes the
// window along: to begin anew would be an amnesty.
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

// carried is what a fixed window begins with.
func (m *Windows) carried() int64 {
	if m.sliding {
		return 0
	}
	return max(0, m.before+m.prev-m.rate)
}

// used is what counts against Rate.
func (m *Windows) used(at int64) float64 {
	if !m.sliding {
		return float64(m.carried() + m.cur)
	}
	elapsed := max(at-m.win*m.period, 0)
	return float64(m.cur) + float64(m.prev)*(float64(m.period-elapsed)/float64(m.period))
}

// Admit is for Meter.
func (m *Windows) Admit(at, n int64) {
	m.roll(at)
	m.cur += n
	m.worst = math.Max(m.worst, m.used(at)-float64(m.rate))
}

// Late is for Meter. The window before the last one is over and done with.
func (m *Windows) Late(now, at, n int64) {
	m.roll(now)
	switch at / m.period {
	case m.win - 1:
		m.prev += n
	default:
		m.cur += n
	}
}

// Holds is for Meter.
func (m *Windows) Holds(at, n int64) bool {
	m.roll(at)
	return m.used(at)+float64(n) <= float64(m.rate)
}

// Excess is for Meter.
func (m *Windows) Excess() float64 { return m.worst }

// Seen is for Meter.
func (m *Windows) Seen(int64) Meter {
	c := *m
	return &c
}
