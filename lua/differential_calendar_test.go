package lua_test

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// diffCalendars are limits of days in zones that change their clocks, of weeks, months and
// years, and of periods from the first use.
var diffCalendars = []hybridlimit.Limit{
	hybridlimit.CalendarWindow(10, hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "Europe/Berlin"}),
	hybridlimit.CalendarWindow(1000, hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "America/New_York", Anchor: 15}),
	hybridlimit.WindowFromUse(10, time.Hour),
	hybridlimit.CalendarWindow(1, hybridlimit.Calendar{Unit: hybridlimit.Week, Anchor: 3}),
	hybridlimit.CalendarWindow(1<<51, hybridlimit.Calendar{Unit: hybridlimit.Year, Anchor: 401}),
	hybridlimit.CalendarWindow(40, hybridlimit.Calendar{Unit: hybridlimit.Day}),
	hybridlimit.WindowFromUse(5, time.Second),
	hybridlimit.WindowFromUse(1000, 30*24*time.Hour),
}

func calendar(states ...algo.State) bool {
	for _, s := range states {
		if s.Born == 0 || s.Kind != algo.KindCalendar {
			return false
		}
	}
	return true
}

// span draws the window of a sender: mostly that of its calendar at the present time. Sometimes its clock or its zone
// data are wrong, or it has the calendar of another limit.
func (d *differ) span(l hybridlimit.Limit) algo.Span {
	if l.Algorithm != hybridlimit.AlgCalendarWindow {
		return algo.Span{}
	}
	at := d.now
	switch d.rng.IntN(8) {
	case 0:
		at += d.rng.Int64N(2*3_600_000_000) - 3_600_000_000
	case 1:
		at += d.rng.Int64N(4*86_400_000_000) - 2*86_400_000_000
	}
	if l.Calendar.Unit == hybridlimit.FromUse {
		if d.rng.IntN(2) == 0 {
			return algo.Span{}
		}
		length := int64(l.Period / time.Second)
		return algo.Span{Begin: at/1e6 - d.rng.Int64N(length+length/4+1), Length: length}
	}
	s := algo.WindowOf(l).At(at).Span()
	if d.rng.IntN(8) == 0 {
		s.Begin, s.Length = s.Begin+3600*(d.rng.Int64N(3)-1), s.Length+3600*(d.rng.Int64N(3)-1)
	}
	return s
}

// period draws the number of the window of an op, or of one near it.
func (d *differ) period(op *wire.Op) int64 {
	begin, length := op.Span.Begin, max(1, op.Span.Length)
	if s := d.model[op.Key].state; calendar(s) {
		begin, length = s.Win, s.Period/1e6
	}
	begin += (d.rng.Int64N(4) - 2) * length
	if d.rng.IntN(6) == 0 {
		begin += d.rng.Int64N(length)
	}
	return max(0, begin)
}
