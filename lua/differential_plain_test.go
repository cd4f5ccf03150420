package lua_test

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// plainWays are the ways of plain asks: alone and together, granted and refused, decided by plain.lua and by the rest of the script.
var plainWays = []string{
	"plain, one, granted true", "plain, one, granted false", "plain, several, granted true", "plain, several, granted false",
	"plain, one, the other way", "plain, several, the other way", "plain, together",
}

// plain returns an op on the key of op that only asks.
func (d *differ) plain(op wire.Op) algo.Op {
	p := algo.Op{ID: op.ID, Since: op.Since}
	burst := max(1, op.Limit.BurstSize())
	if op.Limit.Algorithm == hybridlimit.AlgSlidingLog {
		burst = min(burst, 1000)
	}
	for range 1 + d.rng.IntN(3)*d.rng.IntN(2) {
		p.Asks = append(p.Asks, 1+d.rng.Int64N(1+burst>>d.rng.IntN(8)))
	}
	return p
}

// own moves an op to a key for plain asks only. Its state has no debt and no ledger.
func (d *differ) own(op *wire.Op) {
	op.Key = "own-" + op.Key
	if limit, ok := d.home[op.Key]; ok && d.rng.IntN(50) > 0 {
		op.Limit = limit
	}
	d.home[op.Key] = op.Limit
}

// plainBatch runs a batch of plain asks and counts the ways that the script takes.
func (d *differ) plainBatch(ops []wire.Op) wire.Reply {
	keys, argv := wire.EncodeBatch(wire.Envelope{}, ops)
	raw, err := d.st.run(lua.TimedBatch, keys, append(argv, fmt.Sprint(d.now)))
	if err != nil {
		d.t.Fatalf("%q %+v: %v", argv, ops, err)
	}
	reply, err := wire.DecodeReply(raw, ops)
	if err != nil {
		d.t.Fatalf("%q %+v: %v", argv, ops, err)
	}
	texts := []any{raw}
	if list, ok := raw.([]any); ok {
		texts = list
	}
	size := "several"
	if len(keys) == 1 {
		size = "one"
	}
	if len(ops) > len(keys) {
		d.saw["plain, together"]++
	}
	switch text := texts[0].(type) {
	case string:
		d.saw[fmt.Sprintf("plain, %s, granted %t", size, text[0] == '1')]++
	default:
		d.saw["plain, "+size+", the other way"]++
	}
	return reply
}
