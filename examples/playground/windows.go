package main

import "time"

// pastWindows has the units admitted in this window and in the one before, as package local counts them. A limiter
// reports only the estimate, and the page draws its parts. Windows are aligned to Unix time.
type pastWindows struct {
	start     time.Time
	cur, prev int64
}

// window is a pastWindows at one time, for the page.
type window struct {
	Start int64 `json:"start"` // Unix ms
	Cur   int64 `json:"cur"`
	Prev  int64 `json:"prev"`
}

func (p *pastWindows) advance(now time.Time, period time.Duration) {
	start := time.Unix(0, now.UnixNano()/int64(period)*int64(period))
	if p.start.Equal(start) {
		return
	}
	if start.Sub(p.start) == period {
		p.prev = p.cur
	} else {
		p.prev = 0
	}
	p.start, p.cur = start, 0
}

func (p *pastWindows) add(now time.Time, period time.Duration, n int64) {
	p.advance(now, period)
	p.cur += n
}

func (p *pastWindows) at(now time.Time, period time.Duration) window {
	p.advance(now, period)
	return window{p.start.UnixMilli(), p.cur, p.prev}
}

// estimate returns the estimate of a sliding window, rounded up.
func (p *pastWindows) estimate(now time.Time, period time.Duration) int64 {
	p.advance(now, period)
	left := period - now.Sub(p.start)
	return p.cur + (p.prev*int64(left)+int64(period)-1)/int64(period)
}

// change applies a new period, as a sliding window does: the estimate becomes the count of the current window.
func (p *pastWindows) change(now time.Time, from, to time.Duration) {
	if from == to {
		return
	}
	n := p.estimate(now, from)
	*p = pastWindows{}
	p.add(now, to, n)
}
