package account

import (
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is the part of the model that belongs to windows of a calendar. Each op names the period that its process computes.
// All processes have the same zone data: TestCalendarRules of package algo has senders that differ. A process learns Redis's
// clock from its answers.

// drawCalendar draws a limit of days or of months, whose lengths differ.
func drawCalendar(r *rand.Rand, rate int64) hybridlimit.Limit {
	return hybridlimit.CalendarWindow(rate, []hybridlimit.Calendar{
		{Unit: hybridlimit.Day, Zone: "America/Santiago"}, {Unit: hybridlimit.Month, Zone: "Asia/Tokyo", Anchor: 31},
	}[r.IntN(2)])
}

// heard notes what an answer tells of Redis's clock: it is ahead by skew (µs), and by as much more as the answer took. A hub gives
// an attempt up after SyncTimeout, and takes the quickest answer.
func (p *proc) heard(skew, took int64) { p.lead = skew*1000 + min(took, int64(250*time.Millisecond)) }

// windowAt returns the window of the process's plan at the latest time that Redis's clock may show, as the entry does.
func (p *proc) windowAt(now int64) algo.Window {
	return p.plan.Window.At(modelEpoch + (now+p.lead)/1000)
}

// countedIn returns the window in which Redis has just counted the owed units of an op; 0: that of Redis's clock. Without a number
// of their own, they count in the window that counts for the op. It may be over.
func (r *modelRedis) countedIn(op algo.Op) int64 {
	if op.Win == 0 && r.limit.Window.Calendar {
		return r.state.Win
	}
	return op.Win
}

// namesHere reports whether an op of p would name the window of Redis's clock. Just before a border it may name the next one, and
// a Redis without a state then takes no view.
func (w *world) namesHere(p *proc) bool {
	return !w.t.Window.Calendar || p.windowAt(w.now).Win == w.t.Window.Number(w.redis.clock(w.now))
}

// spoilRules returns the time at which Redis decides, without a rule of calendars.
func (r *modelRedis) spoilRules(s algo.State, at int64) int64 {
	w := r.limit.Window
	begin, end, of := w.Begin(w.Win), w.Begin(w.Win)+w.Period, w.Begin(s.Win)+s.Period
	switch mine := at >= begin && at < end; {
	case mine || !w.Calendar:
	case r.mutant == mutAnyWindow && s.Born == 0:
		return min(max(at, begin), end-1)
	case r.mutant == mutOverStays && s.Born != 0 && at >= of:
		return of - 1
	}
	return at
}
