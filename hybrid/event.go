package hybrid

import "github.com/hybridlimit/hybridlimit/internal/account"

// event is one event of a locked entry, from event to end.
type event struct {
	e          *entry
	conditions account.Conditions
	epoch      uint64
	now        int64 // ns
}

// event begins an event. Call it with the entry locked.
func (e *entry) event() (ev event) {
	ev.e = e
	ev.epoch, ev.now = e.of.clock.Stamp()
	e.setConditions(&ev.conditions, e.plan.Load(), ev.now)
	e.begin(ev.now)
	return ev
}

// end ends the event, unlocks the entry, and queues the sync that the verdict asks for. It adds to the verdict the
// fields that the account cannot know.
func (ev *event) end(v account.Verdict) account.Verdict {
	e := ev.e
	e.end(&ev.conditions, ev.epoch, ev.now)
	e.describe(&v, &ev.conditions, ev.now)
	e.unlock()
	e.sync(v.Sync)
	return v
}

// describe adds the units left and the end of the window to a verdict. Call it under e.mu.
func (e *entry) describe(v *account.Verdict, c *account.Conditions, now int64) {
	v.Left, v.Barred, v.Ends = e.account.Remaining(c, now), e.account.Barred(c, now), e.windowEnd(c, now)
}

// remaining returns Result.Remaining of a verdict.
func remaining(v account.Verdict) int64 { return max(0, v.Left-v.Barred) }
