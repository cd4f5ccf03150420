package gate

import (
	"context"
	"time"
)

// Shape waits until the request's place in all queues has come. If its context ends before, Shape returns the units of
// all parts and fails. This frees the place at the end of the queue: if others wait behind the request, a later request
// may start at the same time as another.
func (g *Gate) Shape(ctx context.Context, parts []Part) error {
	var delay time.Duration
	for i := range parts {
		delay = max(delay, parts[i].Res.Delay)
	}
	if delay <= 0 {
		return nil
	}
	if err := Sleep(ctx, delay); err != nil {
		g.GiveBack(ctx, parts)
		return err
	}
	for i := range parts { // the answer is sent after the delay
		res := &parts[i].Res
		res.ResetAfter = max(0, res.ResetAfter-delay)
	}
	return nil
}

// Sleep waits for d, or until ctx ends. It fails at once if ctx's deadline comes before the end of d.
func Sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
