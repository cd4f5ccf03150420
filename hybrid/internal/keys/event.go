package keys

import "github.com/hybridlimit/hybridlimit/internal/account"

// Event is one event of a locked entry, from event to end.
type Event struct {
	Entry      *Entry
	Conditions account.Conditions
	epoch      uint64
	Now        int64 // ns
}

// Event begins an event. Call it with the entry locked.
func (e *Entry) Event() (ev Event) {
	ev.Entry = e
	ev.epoch, ev.Now = e.Terms.Clock.Stamp()
	e.setConditions(&ev.Conditions, e.Plan.Load(), ev.Now)
	e.Begin(ev.Now)
	return ev
}

// End ends the event, unlocks the entry, and queues the sync that the verdict asks for. It adds to the verdict the
// fields that the account cannot know.
func (ev *Event) End(v account.Verdict) account.Verdict {
	e := ev.Entry
	e.End(&ev.Conditions, ev.epoch, ev.Now)
	e.Describe(&v, &ev.Conditions, ev.Now)
	e.Unlock()
	e.Sync(v.Sync)
	return v
}

// Describe adds the units left and the end of the window to a verdict. Call it under e.mu.
func (e *Entry) Describe(v *account.Verdict, c *account.Conditions, now int64) {
	v.Left, v.Barred, v.Ends = e.Account.Remaining(c, now), e.Account.Barred(c, now), e.windowEnd(c, now)
}

// Remaining returns Result.Remaining of a verdict.
func Remaining(v account.Verdict) int64 { return max(0, v.Left-v.Barred) }
