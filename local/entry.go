package local

import "time"

// entry is what is held for a key: 48 bytes and its state.
type entry struct {
	seen  time.Duration // shard time of the last call
	plan  *plan         // the limit in force: that of the last call
	own   *plan         // what LimitFor said, nil if that was the limiter's limit
	state state
	book  *ahead // of a bucket from which somebody has reserved
}

// newEntry begins under p, the limit of the first call.
func newEntry(p, own *plan) *entry {
	return &entry{own: own, plan: p, state: newState(p)}
}

// use makes p the limit in force.
func (e *entry) use(p *plan, now time.Duration) {
	if e.plan == p {
		return
	}
	if e.plan.limit != p.limit {
		e.state.change(e.plan, p, now)
		e.book = nil
	}
	e.plan = p
}

// by names the request that the next units are taken for. Only logs care.
func (e *entry) by(request string) {
	if j, ok := e.state.(*journal); ok {
		j.request = request
	}
}

func (e *entry) look(now time.Duration, n int64) look { return e.state.look(e.plan, now, n) }

// fresh reports whether the key is as if never used.
func (e *entry) fresh(now time.Duration) bool { return e.look(now, 0).reset == 0 }

func (e *entry) refund(now time.Duration, n int64) {
	if back := e.state.refund(e.plan, now, n); e.book != nil {
		e.book.given += back
	}
}

// charge parts what is booked ahead after it from what was before.
func (e *entry) charge(now time.Duration, n int64) {
	if e.book != nil {
		e.book.seal()
	}
	e.state.charge(e.plan, now, n)
}
