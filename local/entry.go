package local

import "time"

// entry holds the data of a key: 48 bytes and its state.
type entry struct {
	seen  time.Duration // shard time of the last call
	plan  *plan         // the limit in force: that of the last call
	own   *plan         // from LimitFor; nil if that is the limiter's limit
	state state
	book  *ahead // the bookings of a bucket; nil before the first
}

// newEntry returns an unused entry under p, the limit of the first call.
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

// by sets the request of the units taken next. Only logs use it.
func (e *entry) by(request string) {
	if j, ok := e.state.(*journal); ok {
		j.request = request
	}
}

func (e *entry) look(now time.Duration, n int64) look { return e.state.look(e.plan, now, n) }

// fresh reports whether the key has the state of an unused one.
func (e *entry) fresh(now time.Duration) bool { return e.look(now, 0).reset == 0 }

func (e *entry) refund(now time.Duration, n int64) {
	if back := e.state.refund(e.plan, now, n); e.book != nil {
		e.book.given += back
	}
}

// charge takes units, there or not. It separates the bookings after it from those
// before it.
func (e *entry) charge(now time.Duration, n int64) {
	if e.book != nil {
		e.book.seal()
	}
	e.state.charge(e.plan, now, n)
}
