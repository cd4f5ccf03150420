package keys

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/restore"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// WindowAt returns the window of a plan for an event at now. Of a calendar it is the period of the latest time that the
// clock of Redis may show, because an op arrives later. While that clock is not known, it is the period of the process's
// own clock.
func (t *Terms) WindowAt(tag int, p *account.Plan, now int64) algo.Window {
	w := p.Window
	if !w.Calendar {
		return w
	}
	at := t.Clocks.Latest(tag, now)
	if at <= 0 {
		at = t.unix(now)
	}
	return w.At(at)
}

// WindowEnd returns the end of the window at now, by the clock of Redis, or for a calendar by that of the process while
// the other is not known; 0: not known.
func (t *Terms) WindowEnd(tag int, w algo.Window, now int64) int64 {
	if end := t.Clocks.WindowEnd(tag, w, now); end > 0 || !w.Calendar || w.FromUse {
		return end
	}
	at := t.unix(now)
	return now + (w.Ends(at)-at)*1000
}

// unix returns a time of the hub's clock in µs since the Unix epoch, by the process's clock.
func (t *Terms) unix(now int64) int64 { return t.Clock.Time(now).UnixMicro() }

// follows returns the length of the window after the one that ends at ends. The clocks of this process and of Redis may
// differ by a minute.
func (t *Terms) follows(w algo.Window, ends int64) time.Duration {
	if w.Calendar && ends > 0 {
		w = w.At(t.unix(ends + int64(time.Minute)))
	}
	return time.Duration(w.Period) * time.Microsecond
}

// Sighted tells Restore of the state of a key in an answer to an op under a plan, if both the state and the data of its
// tag began in the period. Call it without locks.
func (t *Terms) Sighted(tag int, key string, p *account.Plan, a wire.Answer, redisNow int64) {
	w := p.Window
	if t.Restore == nil || !w.Calendar || w.FromUse || a.Ends == 0 || a.Born == 0 {
		return
	}
	begin := w.Begin(a.Refill) // the answer names the window in which Redis counts
	if epoch := t.Engine.Epoch(tag); a.Born < begin || epoch != 0 && epoch < begin {
		return
	}
	t.Restore.See(restore.Sight{Key: key, Plan: p, Begin: begin, Born: a.Born, Now: redisNow, Used: w.Rate - a.Level/w.Unit})
}
