package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

type booked struct{ gen, units int64 }

// cell is the state of a key in the Go twin.
type cell struct {
	state algo.State
	log   []algo.Entry
}

func (c cell) empty() bool { return c.state.Born == 0 && len(c.log) == 0 }

// apply runs an op on the twin. ttl is the TTL of the cell if the cell is written.
func (c cell) apply(op wire.Op, now int64) (next cell, ans algo.Answer, dirty bool, ttl int64) {
	if op.Limit.Algorithm == hybridlimit.AlgSlidingLog {
		l := algo.LogOf(op.Limit)
		next.log, ans, dirty = l.Apply(c.log, op.Op, now)
		return next, ans, dirty, l.TTL(next.log, now)
	}
	l := algo.LimitOf(op.Limit)
	l.Window = l.Window.In(op.Span)
	next.state, ans, dirty = l.Apply(c.state, op.Op, now)
	return next, ans, dirty, l.TTL(next.state, now)
}

// another reports whether the cell belongs to another algorithm, so that l cannot read it.
func (c cell) another(l hybridlimit.Limit) bool {
	if l.Algorithm == hybridlimit.AlgSlidingLog {
		return c.state.Born != 0
	}
	return len(c.log) > 0 || c.state.Born != 0 && c.state.Kind != algo.KindOf(l.Algorithm)
}

// differ is one run of the same ops on a Redis and on the Go twin.
type differ struct {
	paid   int64 // sequence number of the last batch of payments
	t      *testing.T
	st     store
	rng    *rand.Rand
	now    int64
	limits []hybridlimit.Limit
	model  map[string]cell
	old    map[string]cell        // earlier states
	seen   map[string][]wire.View // views that processes remember
	held   map[string][]booked    // leases of processes in the ledger
	leased string                 // a key of which the last batch had a lease on the key for plain ops
	home   map[string]hybridlimit.Limit
	ops    int
	saw    map[string]int // effects of the ops, counted

	batch []wire.Op // the last batch
	reply wire.Reply
}

func newDiffer(t *testing.T, st store, limits []hybridlimit.Limit) *differ {
	return &differ{
		t: t, st: st, rng: testenv.Rand(t), now: start, limits: limits, model: map[string]cell{}, old: map[string]cell{},
		seen: map[string][]wire.View{}, held: map[string][]booked{}, home: map[string]hybridlimit.Limit{}, saw: map[string]int{},
	}
}

// plays returns long, full or half of full, in the long, the full and the short form.
func plays(full, long int) int {
	if testenv.Full() {
		return testenv.Runs(full, long)
	}
	return full / 2
}

// The library on Redis and the Go twin give the same answers, leave the same
// states, and ask for the same TTLs.
func TestLuaEqualsGo(t *testing.T) {
	for _, kind := range kindRuns {
		for _, l := range kind.limits {
			// The library accepts larger sliding windows than Validate does.
			if err := l.Validate(); err != nil && l.Algorithm != hybridlimit.AlgSlidingWindow {
				t.Fatal(err)
			}
		}
		for _, tc := range []struct {
			name  string
			store func(*testing.T) store
			ops   int
		}{
			{"redis/resp3", func(t *testing.T) store { return realStore(t) }, plays(6000, 200_000)},
			{"redis/resp2", func(t *testing.T) store { return realStore(t, func(o *redis.Options) { o.Protocol = 2 }) }, plays(500, 50_000)},
			{"functions", func(t *testing.T) store { return functionStore(t) }, plays(1000, 200_000)},
			{"miniredis", miniStore, plays(700, 200_000)},
		} {
			t.Run(kind.name+"/"+tc.name, func(t *testing.T) {
				d := newDiffer(t, tc.store(t), kind.limits)
				for d.ops < tc.ops && !t.Failed() {
					d.round()
				}
				t.Logf("%d ops: %v", d.ops, d.saw)
				for _, what := range kind.saw {
					if d.saw[what] == 0 && tc.ops >= 3000 {
						t.Errorf("no op was %q", what)
					}
				}
			})
		}
	}
}

// round moves the clock, sometimes loses a key, and runs one batch.
func (d *differ) round() {
	d.now = max(d.now+d.step(), start/2)
	if d.rng.IntN(8) == 0 {
		key := []string{"", "own-"}[d.rng.IntN(2)] + d.key()
		d.st.del(d.t, key)
		delete(d.model, key)
	}
	if key := d.key(); d.rng.IntN(20) == 0 && d.model[key].state.Born != 0 { // a later version has written a field
		c := d.model[key]
		c.state.More = []string{"", " y0", " b1f x-7"}[d.rng.IntN(3)]
		d.st.set(d.t, key, lua.EncodeState(c.state))
		d.model[key] = c
	}
	if d.rng.IntN(8) == 0 { // a key is rolled back to an earlier state
		key := d.key()
		if s := d.model[key].state; s.Born != 0 && d.old[key].state.Born != 0 && d.rng.IntN(2) == 0 {
			d.st.set(d.t, key, lua.EncodeState(d.old[key].state))
			d.model[key] = d.old[key]
		} else if s.Born != 0 {
			d.old[key] = d.model[key]
		}
	}
	ops := make([]wire.Op, 1+d.rng.IntN(48))
	for i := range ops {
		ops[i] = d.op()
	}
	leased := d.leased != ""
	if leased {
		ops[0].Key, d.leased = d.leased, ""
		if d.rng.IntN(2) == 0 { // with others, one of them often needs the other way
			ops = ops[:1]
		}
	}
	plain := d.rng.IntN(2) == 0 // most calls of global are of this form, and have a way of their own
	if plain {
		own := leased || d.rng.IntN(2) == 0 // on keys that no other ops use
		if own {
			ops = ops[:min(len(ops), 8)]
		}
		ops = ops[:1+d.rng.IntN(len(ops))*d.rng.IntN(2)] // half of them of one op
		for i := range ops {
			ops[i].Op = d.plain(ops[i])
			if own {
				d.own(&ops[i])
			}
			if !leased && d.rng.IntN(3) == 0 {
				d.tell(&ops[i])
			}
		}
	}
	sent := time.Now()
	var reply wire.Reply
	var waits []int64
	pays := !plain && (leased || d.rng.IntN(2) == 0) && d.payments(&ops, leased)
	if !plain && !pays {
		d.lease(ops)
	}
	switch {
	case plain:
		reply = d.plainBatch(ops)
	case pays:
		reply = d.payBatch(ops)
	case d.rng.IntN(4) == 0:
		ops = ops[:min(len(ops), 1+d.rng.IntN(6))]
		if d.rng.IntN(2) == 0 { // unused keys, because otherwise most of these batches are refused
			for _, op := range ops {
				d.st.del(d.t, op.Key)
				delete(d.model, op.Key)
			}
		}
		ops, waits = d.allOrNothing(ops)
		reply = d.st.all(d.t, ops, d.now)
		if reply.Refused != (waits != nil) {
			d.t.Fatalf("Refused = %v, but the twin's waits are %v for %+v", reply.Refused, waits, ops)
		}
	default:
		reply = d.st.batch(d.t, wire.Envelope{}, ops, d.now)
	}
	if reply.Now != d.now || (reply.Epoch != 0) != pays || reply.Seen || reply.Stale || reply.Gap {
		d.t.Fatalf("unexpected reply %+v at %d", reply, d.now)
	}
	written := map[string]int64{} // TTL by key
	for i, op := range ops {
		before := d.model[op.Key]
		if waits != nil {
			op.Asks = nil
		}
		next, want, dirty, ttl := before.apply(op, d.now)
		if waits != nil {
			want.Retry = waits[i]
		}
		if got := reply.Answers[i]; got != want {
			d.t.Fatalf("op %d of %d at %d\nstate %+v\nlimit %v\nop    %+v\nredis %+v\ngo    %+v",
				i, len(ops), d.now, before, op.Limit, op.Op, got, want)
		}
		d.note(before, op, want, next)
		// A later op under another limit converts the state to its own units.
		if _, ok := written[op.Key]; dirty || ok && !before.empty() && !before.another(op.Limit) {
			d.model[op.Key], written[op.Key] = next, ttl
			if next.empty() {
				delete(d.model, op.Key)
			}
		}
		if want.Born != 0 {
			if want.Gen != 0 {
				d.held[op.Key] = append(d.held[op.Key], booked{want.Gen, op.Keep + want.Lease})
			}
			prev := want.Refill
			if op.Limit.Algorithm == hybridlimit.AlgCalendarWindow { // which has another meaning
				prev = 0
			}
			d.seen[op.Key] = append(d.seen[op.Key], wire.View{Level: want.Level, Prev: prev, Next: next.state.Next, At: d.now, Born: want.Born})
		}
	}
	d.ops += len(ops)
	d.batch, d.reply = ops, reply
	d.compare(written, sent)
}

// allOrNothing turns ops into ops that only ask, with one limit per key. It returns for each
// op the wait until it and the earlier ops on its key would fit; nil if all fit.
func (d *differ) allOrNothing(ops []wire.Op) ([]wire.Op, []int64) {
	limits, want, spans := map[string]hybridlimit.Limit{}, map[string]int64{}, map[string]algo.Span{}
	waits, refused := make([]int64, len(ops)), false
	for i, op := range ops {
		limit, ok := limits[op.Key]
		if !ok {
			limit = op.Limit
			limits[op.Key] = limit
		}
		span, ok := spans[op.Key]
		if !ok {
			span = d.span(limit)
			spans[op.Key] = span
		}
		ops[i] = wire.Op{Key: op.Key, Limit: limit, Span: span, Op: algo.Op{Asks: op.Asks, ID: op.ID}}
		for _, n := range op.Asks {
			want[op.Key] += n
		}
		ops[i].Asks = slices.Clone(op.Asks)
		if want[op.Key] == 0 {
			continue
		}
		probe := wire.Op{Limit: limit, Span: span, Op: algo.Op{Asks: []int64{want[op.Key]}}}
		if _, ans, _, _ := d.model[op.Key].apply(probe, d.now); ans.Granted == 0 {
			waits[i], refused = ans.Retry, true
		}
	}
	if !refused {
		d.saw["all"]++
		return ops, nil
	}
	d.saw["nothing"]++
	return ops, waits
}

// note counts the effects of an op, so that a run without the interesting cases fails.
func (d *differ) note(c cell, op wire.Op, a algo.Answer, next cell) {
	s, n := c.state, next.state
	other := op.View.Born != 0 && s.Born != 0 && op.View.Born != s.Born
	for what, is := range map[string]bool{
		"granted": a.Granted > 0, "leased": a.Lease > 0, "refused": a.Granted == 0 && len(op.Asks) > 0,
		"never": a.Retry == algo.Never, "debt": a.Level < 0, "floor": a.Level == -full(op.Limit),
		"frozen": s.Last > d.now || len(c.log) > 0 && c.log[len(c.log)-1].At > d.now, "other life": other,
		"booked": a.Gen != 0 && a.Lease > 0, "renewed": a.Gen != 0 && op.Keep > 0, "not renewed": a.Gen == 0 && op.Keep > 0,
		"returned": op.Back > 0 && !a.Refused, "not returned": a.Refused,
		"turn": op.Div > 0 && a.Retry > 0 && a.Retry != algo.Never && a.Level >= n.Unit,
		"left": op.Floor > 0 && a.Granted == 0 && len(op.Asks) > 0 && a.Level >= n.Unit, "leased above a floor": op.Floor > 0 && a.Lease > 0,
		"long generations": n.Span > 0 && a.Gen != 0, "longer generations": s.Out != [2]int64{} && n.Span > s.Span, "shorter generations": n.Out != [2]int64{} && n.Span < s.Span,
		"settled in a long generation": s.Span > 0 && op.Had > 0 && (a.Gen != 0 || op.Back > 0 && !a.Refused),
		"away":                         op.Upper && op.Div > 0 && a.Retry > 0,
		"rolled back":                  s.Born != 0 && op.View.Born == s.Born && a.Born != s.Born,
		"delayed":                      a.Delay > 0, "refunded of a call": op.Refund > 0 && op.RefundAt > 0 && len(next.log) < len(c.log), "refunded": op.Refund > 0, "reset": op.Reset,
		"observed": op.Used > 0 && a.Level < s.Level && op.Owed+a.Granted+a.Lease == 0, "too old": op.Used > 0 && op.UsedBy > 0 && op.UsedBy < d.now,
		"void view": other && op.View.At <= s.Reset,
		"dropped":   a.Dropped, "late": op.Owed > 0 && op.Win == n.Win-1, "carried": n.Kind == algo.KindFixed && n.Prev*n.Period > n.Prev && n.Cur > 0 && a.Granted == 0,
		"leased ahead": op.Ahead && a.Lease > 0 && n.Next > 0, "returned ahead": op.Back > 0 && !a.Refused && n.Next < s.Next && op.Gen > n.Win, "begun with leases": s.Next > 0 && n.Win == s.Win+1 && n.Cur >= s.Next,
		"closed": op.Limit.Algorithm == hybridlimit.AlgCalendarWindow && a.Ends == 0, "another begin": calendar(s, n) && n.Win > s.Win && n.Win < s.Win+s.Period/1e6,
		"another end": calendar(s, n) && n.Win == s.Win && n.Period != s.Period, "earlier begin": calendar(s, n) && n.Win < s.Win,
		"of the next window": a.Retry > a.Ends && a.Retry != algo.Never, "fading": a.Refill > 0, "another kind": c.another(op.Limit),
	} {
		if is {
			d.saw[what]++
		}
	}
}

func full(l hybridlimit.Limit) int64 {
	if l.Algorithm == hybridlimit.AlgSlidingLog {
		return l.Rate
	}
	return algo.LimitOf(l).Full()
}

// step draws the µs until the next batch: from 0 to days, sometimes back in time.
func (d *differ) step() int64 {
	scale := []int64{0, 1, 10, 1000, 50_000, 1_000_000, 60_000_000, 3_600_000_000, 3 * 86_400_000_000}
	n := d.rng.Int64N(scale[d.rng.IntN(len(scale))] + 1)
	if d.leased != "" {
		return d.rng.Int64N(algo.Generation)
	}
	switch d.rng.IntN(20) {
	case 0:
		return -d.rng.Int64N(algo.ClockSlack + 1)
	case 1:
		return -algo.ClockSlack - d.rng.Int64N(2)
	case 2:
		return -n
	}
	return n
}

func (d *differ) key() string { return fmt.Sprintf("k%d", d.rng.IntN(12)) }

func (d *differ) op() wire.Op {
	key := d.key()
	limit, ok := d.home[key]
	if !ok || d.rng.IntN(50) == 0 { // sometimes a key's limit changes
		limit = d.limits[d.rng.IntN(len(d.limits))]
		d.home[key] = limit
	}
	if d.rng.IntN(20) == 0 { // sometimes a process does not know the change
		limit = d.limits[d.rng.IntN(len(d.limits))]
	}
	op := wire.Op{Key: key, Limit: limit, Span: d.span(limit)}
	burst := limit.BurstSize()
	if d.rng.IntN(8) == 0 {
		op.Owed = d.cost(burst)
	}
	for range d.rng.IntN(4) {
		op.Asks = append(op.Asks, d.cost(burst))
	}
	op.Partial = d.rng.IntN(3) == 0
	if d.rng.IntN(3) == 0 { // mostly of half of the burst at most, as Config.Classes allows
		op.Floor = d.rng.Int64N(1 + burst/(1+d.rng.Int64N(4)))
	}
	op.Upper, op.Queued, op.MaxLife = d.rng.IntN(4) == 0, d.rng.IntN(2) == 0, max(0, d.rng.Int64N(8)-3)
	if d.rng.IntN(2) == 0 {
		op.Demand, op.Div = d.rng.Int64N(1+d.rng.Int64N(1e12)), d.rng.Int64N(6)
	}
	if d.rng.IntN(3) == 0 {
		op.Since = 1 + d.rng.Int64N(1<<d.rng.IntN(48))
	}
	op.View, op.Lost = d.view(key, limit), d.rng.IntN(2) == 0
	if held := d.held[key]; len(held) > 0 && d.rng.IntN(3) > 0 { // mostly the last lease
		h := held[len(held)-1-min(d.rng.IntN(20), len(held)-1)/18]
		op.Gen, op.Had = h.gen, h.units+d.rng.Int64N(8)/7
		op.Keep = d.rng.Int64N(op.Had + 1)
		if d.rng.IntN(2) == 0 {
			op.Back = d.rng.Int64N(op.Had - op.Keep + 2)
		}
	}
	d.seldom(&op, burst)
	return op
}

// seldom adds fields that ops of package hybrid do not use.
func (d *differ) seldom(op *wire.Op, burst int64) {
	if d.rng.IntN(20) == 0 {
		op.Refund = d.cost(burst)
	}
	if d.rng.IntN(60) == 0 {
		op.Reset = true
	}
	if d.rng.IntN(10) == 0 {
		op.MaxDelay = 1 + d.rng.Int64N(1+int64(op.Limit.Period/time.Microsecond)*(1+d.rng.Int64N(3)))
		op.Asks = op.Asks[:min(1, len(op.Asks))]
	}
	if d.rng.IntN(10) == 0 {
		op.Used, op.UsedBy = d.rng.Int64N(1+burst+d.rng.Int64N(1+burst)), d.rng.Int64N(2)*max(1, d.now+d.rng.Int64N(4)-1)
	}
	period := max(1, int64(op.Limit.Period/time.Microsecond))
	calendar := op.Limit.Algorithm == hybridlimit.AlgCalendarWindow
	window := func() int64 {
		if calendar {
			return d.period(op)
		}
		return max(0, d.now/period+1-d.rng.Int64N(4))
	}
	if d.rng.IntN(3) == 0 {
		op.Win = window()
	}
	if kind := algo.KindOf(op.Limit.Algorithm); (kind == algo.KindFixed || kind == algo.KindSliding || calendar) && d.rng.IntN(6) == 0 {
		op.Back, op.Gen = d.cost(burst), window()+d.rng.Int64N(2)
	}
	op.Ahead = op.Div > 0 && d.rng.IntN(2) == 0
	switch kind := algo.KindOf(op.Limit.Algorithm); {
	case d.rng.IntN(2) == 0:
	case kind == algo.KindLog:
		if log := d.model[op.Key].log; len(log) > 0 {
			op.RefundAt = log[d.rng.IntN(len(log))].At
		}
	case kind == algo.KindFixed || kind == algo.KindSliding || calendar:
		op.RefundAt = window()
	default:
		op.RefundAt = max(0, d.now+d.rng.Int64N(1+2*period)-period)
	}
	if d.rng.IntN(4) == 0 {
		op.ID = fmt.Sprintf("id-%d", d.rng.IntN(100))
	}
}

// cost draws a cost: mostly small, up to the burst, seldom above.
func (d *differ) cost(burst int64) int64 {
	switch d.rng.IntN(30) {
	case 0:
		return burst
	case 1:
		return burst + 1 + d.rng.Int64N(burst)
	case 2, 3, 4:
		return 1 + d.rng.Int64N(burst)
	}
	return 1 + d.rng.Int64N(min(burst, 3))
}

// view draws no view, the last one, an old one, or one of another life of the key.
func (d *differ) view(key string, limit hybridlimit.Limit) wire.View {
	seen := d.seen[key]
	switch n := d.rng.IntN(100); {
	case n < 30 || len(seen) == 0:
		return wire.View{}
	case n < 95:
		return seen[len(seen)-1]
	case n < 99:
		return seen[d.rng.IntN(len(seen))]
	}
	most := full(limit)
	return wire.View{
		Level: d.rng.Int64N(2*most+1) - most,
		Prev:  d.rng.Int64N(2 * limit.Rate),
		At:    d.now - d.rng.Int64N(1e7) + 1e6, Born: 1 + d.rng.Int64N(start),
	}
}
