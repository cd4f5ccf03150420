// Package periods remembers the periods of calendars, so that a decision compares two numbers and computes no date.
package periods

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Periods finds the periods of a calendar. It remembers the last one: on the common path, it compares twice.
type Periods struct {
	of   hybridlimit.Calendar
	last atomic.Pointer[Period]
}

// Period is a period in µs since the Unix epoch.
type Period struct {
	Begin int64 // µs
	End   int64 // and the begin of the next one
	After int64 // the end of the next one
}

// At returns the period that contains a time in µs since the Unix epoch.
func (p *Periods) At(now int64) Period {
	if last := p.last.Load(); last != nil && now >= last.Begin && now < last.End {
		return *last
	}
	found := p.bounds(now)
	found.After = p.bounds(found.End).End
	p.last.Store(&found)
	return found
}

func (p *Periods) bounds(now int64) Period {
	begin, end, err := p.of.Bounds(time.UnixMicro(now))
	if err != nil { // of a limit that was never checked
		panic("periods: a calendar without bounds: " + err.Error())
	}
	return Period{Begin: begin.UnixMicro(), End: end.UnixMicro()}
}

// known has the periods of calendars, which limits of several keys share. most bounds their number: there are some 40
// anchors, and a program uses few zones.
var (
	known sync.Map
	count atomic.Int64
)

const most = 4096

// Of returns the periods of a calendar that Limit.Validate accepts and that has dates.
func Of(c hybridlimit.Calendar) *Periods {
	if p, ok := known.Load(c); ok {
		return p.(*Periods)
	}
	p := &Periods{of: c}
	if count.Load() >= most {
		return p
	}
	shared, had := known.LoadOrStore(c, p)
	if !had {
		count.Add(1)
	}
	return shared.(*Periods)
}
