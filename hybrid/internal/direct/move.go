package direct

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/split"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

const (
	// leaveTries is the number of times that a move tries to leave a part, and leaveEvery the time between two of them. A
	// busy key may owe, or wait for Redis, at each of these times. The move is given up then.
	leaveTries = 20
	leaveEvery = 25 * time.Millisecond
)

// Move looks at another part of a key, and makes the process use it if it has units. Before that, the process pays what it
// owes to the part that it leaves, and returns its units. So it has leases and credit in one part at a time. Move ends
// early with ctx.
func (a *Asker) Move(ctx context.Context, look split.Look) {
	at, ok := a.terms.Known(look.Key)
	if !ok || at.Plan.Part != look.From || a.terms.Alone(at.Tag) {
		return
	}
	to := a.terms.InPart(at, look.To)
	ans, _, ok := a.Within(ctx, to, algo.Op{}, a.env.Engine.Timeout())
	// A window that has just begun has units in all parts, so the other part alone says nothing.
	if !ok || !parts.Worth(to.Plan.Units(ans.Level), to.Plan.Burst) || parts.Worth(a.terms.Left(look.Key), at.Plan.Burst) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for range leaveTries {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if a.terms.Go(look) {
			return
		}
		timer.Reset(leaveEvery)
	}
}
