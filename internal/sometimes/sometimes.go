// Package sometimes bounds how often a line of a kind is logged, by rate.Sometimes of golang.org/x/time.
package sometimes

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Line is a kind of log line. It is safe for concurrent use. Make one with Every.
type Line struct {
	every   rate.Sometimes
	skipped atomic.Int64
}

// Every returns a line that is written at most once in an interval.
func Every(interval time.Duration) *Line { return &Line{every: rate.Sometimes{Interval: interval}} }

// Due reports whether the line may be written now, and how many were skipped since the last one. If it may not, it
// counts as skipped.
func (l *Line) Due() (skipped int64, ok bool) {
	l.every.Do(func() { ok = true })
	if !ok {
		l.skipped.Add(1)
		return 0, false
	}
	return l.skipped.Swap(0), true
}
