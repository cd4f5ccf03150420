package fleet

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

// hotPart is a part of a split key with its Redis, or a whole key.
type hotPart struct {
	hotServer
	part       parts.Part // Of is 1 for a whole key
	plan       *account.Plan
	conditions account.Conditions
	state      algo.State
	dies       int64 // µs of Redis time
}

// The moves of package hybrid: direct.Asker.Move. A bucket that refuses has no units left, so a look need not compare them.
const (
	hotLeaveTries = 20
	hotLeaveEvery = int64(25 * time.Millisecond)
)

// lookForPart lets a process look at another part, if its own has refused units. The heartbeat calls it.
func (h *hotLeases) lookForPart(i int) {
	p := h.procs[i]
	if len(h.parts) < 2 || p.open {
		return
	}
	other, ok := p.watch.Look(p.part.part, p.part.plan.Rate(), int64(h.w.s.Processes), h.w.rnd.Float64, h.w.Now)
	if !ok {
		return
	}
	from, to := p.part, h.parts[other.Nth-1]
	look := &hotFlight{}
	h.w.exchange(&to.hotServer, func() { to.apply(look, h.w.Now) }, func() {
		if parts.Worth(to.plan.Bucket.Units(look.ans.Level), to.plan.Burst) {
			h.leavePart(i, from, to, hotLeaveTries)
		}
	})
}

// leavePart lets a process use another part, as soon as it owes nothing and holds nothing of its own.
func (h *hotLeases) leavePart(i int, from, to *hotPart, tries int) {
	p := h.procs[i]
	if p.part != from || tries == 0 {
		return
	}
	h.begin(p)
	if p.waiters.Len() == 0 && p.flight == nil && p.account.Forgettable(p.open) {
		p.account, p.part, p.watch = account.Account{}, to, parts.NewWatch(h.w.Now)
		p.due = never
		h.w.report.Moves++
		return
	}
	p.account.Return()
	p.wants = account.SyncNow
	h.end(p)
	h.poke(i)
	h.w.After(hotLeaveEvery, func() { h.leavePart(i, from, to, tries-1) })
}
