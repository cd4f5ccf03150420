package runner

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// texts remembers the arguments of messages with one op that only asks. They depend
// on its limit and its units, and not on its key.
type texts [64]atomic.Pointer[text]

// text is the arguments for an ask.
type text struct {
	ask  ask
	argv []any
}

type ask struct {
	limit hybridlimit.Limit
	n     int64
}

var seed = maphash.MakeSeed()

// of returns the arguments of a batch of this op alone, which must only ask, once.
// They must not be changed.
func (t *texts) of(op *wire.Op) []any {
	a := ask{op.Limit, op.Asks[0]}
	place := &t[maphash.Comparable(seed, a)%uint64(len(t))]
	if have := place.Load(); have != nil && have.ask == a {
		return have.argv
	}
	_, argv := wire.EncodeBatch(wire.Envelope{}, []wire.Op{*op})
	have := &text{ask: a, argv: boxed(argv)}
	place.Store(have)
	return have.argv
}

// plain reports whether an op does no more than ask, all or none.
func plain(op *algo.Op) bool {
	return op.Owed == 0 && !op.Partial && op.Demand == 0 && op.Div == 0 && op.View == algo.View{} &&
		op.Gen == 0 && op.Had == 0 && op.Keep == 0 && op.Back == 0 && !op.Ahead && !op.Lost && !op.Broken &&
		op.Win == 0 && op.Refund == 0 && op.RefundAt == 0 && op.Since == 0 && !op.Reset && op.MaxDelay == 0 && op.ID == ""
}
