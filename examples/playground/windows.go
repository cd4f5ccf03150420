package main

import "time"

// pastWindows is what was admitted in this window and the one before, as
// package local counts it; a limiter tells the estimate only, and the page draws
// what it is made of. Windows are aligned to Unix time.
type pastWindows struct {
	start     time.Time
	cur, prev int64
}

// window is pastWindows at a time, for the page.
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

// estimate is what a sliding window counts, rounded up.
func (p *pastWindows) estimate(now time.Time, period time.Duration) int64 {
	p.advance(now, period)
	left := period - now.Sub(p.start)
	return p.cur + (p.prev*int64(left)+int64(period)-1)/int64(period)
}

// change is what a sliding window does when its period changes: the estimate
// becomes the count of the window that now is.
func (p *pastWindows) change(now time.Time, from, to time.Duration) {
	if from == to {
		return
	}
	n := p.estimate(now, from)
	*p = pastWindows{}
	p.add(now, to, n)
}
