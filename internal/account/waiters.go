package account

import "slices"

// maxAsks is the largest number of waiting calls in one op. The other calls are served from the lease that comes with
// it, or by the next op.
const maxAsks = 64

// Waiter is a call that waits for Redis. The lock of the entry guards it.
type Waiter struct {
	N    int64 // units; 0: it waits for the next answer and takes nothing
	Plan *Plan // of the limit under which it asks

	// Verdict is the answer, after Receive has returned the Waiter.
	Verdict Verdict
	// Out receives Verdict from the shell. It has a buffer of one.
	Out chan Verdict

	done bool // Receive has answered the call
	gone bool // the caller has left
}

// NewWaiter returns a waiting call for n units under a plan.
func NewWaiter(n int64, p *Plan) *Waiter { return &Waiter{N: n, Plan: p, Out: make(chan Verdict, 1)} }

// Leave makes the call stop waiting. It returns false if the call is already answered: then that answer counts.
func (w *Waiter) Leave() bool {
	if w.done {
		return false
	}
	w.gone = true
	return true
}

// Waiters is the waiting calls of one key, in order.
type Waiters struct {
	list    []*Waiter
	carried int   // number of calls, from the front of the list, that the op in flight carries
	sent    *Plan // the plan of that op
}

// Add puts a call behind the others.
func (ws *Waiters) Add(w *Waiter) { ws.list = append(ws.list, w) }

// Len returns the number of waiting calls. It includes calls that have left and are still in the list.
func (ws *Waiters) Len() int { return len(ws.list) }

// Sent returns the plan of the last op that was sent; nil: none was sent yet.
func (ws *Waiters) Sent() *Plan { return ws.sent }

// Front prepares for Send. It removes the calls that have left. It moves the calls that ask under the limit of the
// first call to the front, because an op has one limit. It returns the plan of the first call, which must become the
// key's plan; nil: no call waits.
func (ws *Waiters) Front() *Plan {
	ws.list = slices.DeleteFunc(ws.list, func(w *Waiter) bool { return w.gone })
	ws.carried = 0
	if len(ws.list) == 0 {
		return nil
	}
	first := ws.list[0].Plan
	other := func(w *Waiter) int {
		if w.Plan.Limit == first.Limit {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ws.list, func(v, w *Waiter) int { return other(v) - other(w) })
	same := slices.IndexFunc(ws.list, func(w *Waiter) bool { return other(w) == 1 })
	if same < 0 {
		same = len(ws.list)
	}
	ws.carried = min(same, maxAsks)
	return first
}

// asks returns the costs of the calls that the next op carries.
func (ws *Waiters) asks() (costs []int64) {
	for _, w := range ws.list[:ws.carried] {
		costs = append(costs, w.N)
	}
	return costs
}

// present removes the calls that have left. It returns the costs of the others, and the number of them that the op in
// flight carries.
func (ws *Waiters) present() (costs []int64, carried int) {
	costs = make([]int64, 0, len(ws.list))
	kept := ws.list[:0]
	for i, w := range ws.list {
		if w.gone {
			continue
		}
		if i < ws.carried {
			carried++
		}
		kept, costs = append(kept, w), append(costs, w.N)
	}
	clear(ws.list[len(kept):])
	ws.list, ws.carried = kept, 0
	return costs, carried
}
