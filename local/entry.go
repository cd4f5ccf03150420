package local

import "time"

// entry is what is held for a key: 48 bytes and its state.
type entry struct {
	seen  time.Duration // shard time of the last call
	plan  *plan         // the limit in force: that of the last call
	own   *plan         // what LimitFor said, nil if that was the limiter's limit
	state state
	given float64 // units given back so far, see tokens.undo
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
		// Nobody knows any more how full a bucket may have been.
		e.given += float64(e.plan.burst) + float64(p.burst)
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
	e.given += e.state.refund(e.plan, now, n)
}

// A receipt is what Cancel must know.
type receipt struct {
	mark
	given float64
	n     int64
}

func (e *entry) receipt(now time.Duration, n int64) receipt {
	return receipt{mark: e.state.mark(e.plan, now), given: e.given, n: n}
}

func (e *entry) undo(now time.Duration, r receipt) {
	e.given += e.state.undo(e.plan, now, r.mark, e.given-r.given, r.n)
}
