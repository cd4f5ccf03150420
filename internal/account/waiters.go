package account

import "slices"

// maxAsks is how many waiting calls one op carries. The rest are served from the lease that comes with it, or by the next op.
const maxAsks = 64

// Waiter is a call that waits for Redis. All of it is guarded by the entry's lock.
type Waiter struct {
	N    int64 // units; 0: it waits for the next answer, and takes nothing
	Plan *Plan // of the limit under which it asks

	// Verdict is the answer, once Done.
	Verdict Verdict
	// Out gets Verdict from the shell, which makes it with room for one.
	Out chan Verdict

	done bool // Receive has answered it
	gone bool // its caller has left
}

// NewWaiter is a call for n units under a plan.
func NewWaiter(n int64, p *Plan) *Waiter { return &Waiter{N: n, Plan: p, Out: make(chan Verdict, 1)} }

// Leave takes the call out of those that wait. It reports false where the call is answered already: that answer counts.
func (w *Waiter) Leave() bool {
	if w.done {
		return false
	}
	w.gone = true
	return true
}

// Waiters is the calls of one key that wait for Redis, in order.
type Waiters struct {
	list    []*Waiter
	carried int   // how many of the list the op on its way asks for
	sent    *Plan // the plan of that op
}

// Add puts a call behind the others.
func (ws *Waiters) Add(w *Waiter) { ws.list = append(ws.list, w) }

// Len is how many calls wait, those that have left and were not taken out yet included.
func (ws *Waiters) Len() int { return len(ws.list) }

// Sent is the plan of the op that is on its way; nil: none was sent yet.
func (ws *Waiters) Sent() *Plan { return ws.sent }

// Front prepares for Send. It takes out calls that have left, and puts those that ask under the limit of the first before the
// others, since an op has one limit. It returns the first's plan, which is to be the key's; nil: no call waits.
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

// asks is the costs of the calls that the next op asks for.
func (ws *Waiters) asks() (costs []int64) {
	for _, w := range ws.list[:ws.carried] {
		costs = append(costs, w.N)
	}
	return costs
}

// present takes out the calls that have left, and returns the costs of the others and how many of them the op on its way
// carries.
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
