package lua_test

import (
	"fmt"
	"regexp"
	"time"

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

// payWays are the ways of payments, in the same way. Only buckets have them.
var payWays = []string{
	"pays, one", "pays, several", "pays, with a view", "pays, with an ask", "pays, one, the other way", "pays, several, the other way",
	"plain, with a view", "pays, with a ledger", "plain, with a ledger",
}

// ledger matches the text of a state with leases.
var ledger = regexp.MustCompile(` [op][0-9a-f]+$`)

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

// own moves an op to a key for plain ops and leases only. Its state has no debt.
func (d *differ) own(op *wire.Op) {
	op.Key = "own-" + op.Key
	if limit, ok := d.home[op.Key]; ok && d.rng.IntN(50) > 0 {
		op.Limit, op.Span = limit, d.span(limit)
	}
	d.home[op.Key] = op.Limit
}

// lease makes leases on such keys of some ops for buckets: on two keys, because a lease leaves refusals to the other way.
func (d *differ) lease(ops []wire.Op) {
	for i := range ops {
		if ops[i].Limit.Algorithm == hybridlimit.AlgTokenBucket && ops[i].Key < "k10" && d.rng.IntN(2) == 0 {
			d.leased = ops[i].Key
			d.own(&ops[i])
			ops[i].Op = algo.Op{Owed: 1, Demand: 1 + d.rng.Int64N(1e6), Div: 2, Since: ops[i].Since}
		}
	}
}

// tell gives an op for a bucket a view.
func (d *differ) tell(op *wire.Op) {
	if a := op.Limit.Algorithm; a == hybridlimit.AlgTokenBucket || a == hybridlimit.AlgLeakyBucket {
		op.View = d.view(op.Key, op.Limit)
		op.View.Prev, op.View.Next = 0, 0
	}
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
	if text, short := texts[0].(string); short && ops[0].View.Born > 0 {
		d.saw["plain, with a view"]++
	} else if short && ledger.MatchString(text) {
		d.saw["plain, with a ledger"]++
	}
	if _, short := texts[0].(string); !short {
		d.saw["plain, "+size+", the other way"]++
		return reply
	}
	for _, text := range texts {
		d.saw[fmt.Sprintf("plain, %s, granted %t", size, text.(string)[0] == '1')]++
	}
	return reply
}

// payments turns ops into ops that only pay, or have one ask, for buckets, mostly on keys with neither debt nor ledger. It reports
// whether any is left.
func (d *differ) payments(ops *[]wire.Op, own bool) bool {
	own, views, once := own || d.rng.IntN(4) > 0, !own && d.rng.IntN(2) == 0, d.rng.IntN(8) > 0
	most := 1 + d.rng.IntN(8)*d.rng.IntN(2)
	div, seen := 2+2*d.rng.Int64N(3), map[string]bool{}
	var out []wire.Op
	for _, op := range *ops {
		if a := op.Limit.Algorithm; a != hybridlimit.AlgTokenBucket && a != hybridlimit.AlgLeakyBucket || len(out) == most {
			continue
		}
		if own {
			d.own(&op)
		}
		if op.Limit.Algorithm != hybridlimit.AlgTokenBucket && op.Limit.Algorithm != hybridlimit.AlgLeakyBucket || once && seen[op.Key] {
			continue
		}
		seen[op.Key] = true
		op.Op = algo.Op{Owed: 1 + d.rng.Int64N(1+max(1, op.Limit.BurstSize())>>(3+d.rng.IntN(8))), Div: div, Since: op.Since}
		if d.rng.IntN(4) == 0 {
			op.Op = algo.Op{Asks: []int64{op.Owed}, Since: op.Since}
		}
		if views {
			d.tell(&op)
		}
		out = append(out, op)
	}
	*ops = out
	return len(out) > 0
}

// payBatch runs a batch of ops that only pay, with the next envelope, and counts the ways that the script takes.
func (d *differ) payBatch(ops []wire.Op) wire.Reply {
	d.paid++
	keys, argv := wire.EncodeBatch(wire.Envelope{Key: "@env", Epoch: "@epoch", Seq: d.paid, TTL: time.Hour}, ops)
	if argv[0][0] != 'e' {
		d.t.Fatalf("%+v has another form: %q", ops, argv)
	}
	raw, err := d.st.run(lua.TimedBatch, keys, append(argv, fmt.Sprint(d.now)))
	if err != nil {
		d.t.Fatalf("%q %+v: %v", argv, ops, err)
	}
	reply, err := wire.DecodeReply(raw, ops)
	if err != nil {
		d.t.Fatalf("%q %+v: %v", argv, ops, err)
	}
	what := "pays, several"
	if len(ops) == 1 {
		what = "pays, one"
	}
	if _, short := raw.([]any)[0].(string); !short {
		what += ", the other way"
	} else if text, _ := raw.([]any)[1].(string); ledger.MatchString(text) {
		d.saw["pays, with a ledger"]++
	} else if ops[0].View.Born > 0 {
		d.saw["pays, with a view"]++
	} else if len(ops[0].Asks) > 0 {
		d.saw["pays, with an ask"]++
	}
	d.saw[what]++
	return reply
}
