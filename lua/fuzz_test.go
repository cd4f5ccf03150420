package lua_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// fuzzStore returns a miniredis for all inputs of a fuzz target.
func fuzzStore(f *testing.F) store {
	f.Helper()
	m := redistest.Mini(f)
	return store{rdb: redistest.Client(f, m.Addr()), mini: m}
}

// fuzzLimits has a limit of each algorithm, and some at the end of the range.
var fuzzLimits = []hybridlimit.Limit{
	hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.LeakyQueue(10, time.Second, 5), hybridlimit.FixedWindow(10, time.Minute),
	hybridlimit.SlidingWindow(1_000_000, 24*time.Hour), hybridlimit.SlidingLog(10, time.Minute),
	hybridlimit.TokenBucket(1, 24*time.Hour, 50_000), hybridlimit.FixedWindow(1<<51, 1<<50*time.Microsecond), hybridlimit.SlidingWindow(1<<51, 1<<50*time.Microsecond),
}

// FuzzBatch checks, for all values of an op up to 2⁵³, that Lua reads the batch as Go meant
// it. Lua applies the batch as a whole or refuses it as a whole.
func FuzzBatch(f *testing.F) {
	f.Add(uint8(0), uint8(0), int64(0), int64(3), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), "")
	f.Add(uint8(1), uint8(8), int64(17), int64(1), int64(2), int64(7), int64(0), int64(1_500_000), int64(0), int64(12_500), int64(40), "")
	f.Add(uint8(2), uint8(1), int64(0), int64(4), int64(0), int64(3), int64(29383333), int64(0), int64(2), int64(0), int64(0), "")
	f.Add(uint8(3), uint8(16), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(1)<<53-1, "")
	f.Add(uint8(4), uint8(4), int64(0), int64(1), int64(2), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), "a b\x00é+%")
	f.Add(uint8(0), uint8(32), int64(0), int64(200), int64(0), int64(0), int64(1)<<50, int64(2_000_000), int64(60), int64(0), int64(0), "")
	f.Add(uint8(0), uint8(0), int64(0), int64(200), int64(29), int64(0), int64(0), int64(2_000_000), int64(0), int64(0), int64(0), "") // once granted 229 of 200
	f.Add(uint8(7), uint8(31), int64(1)<<53-1, int64(1)<<53-1, int64(1)<<53-1, int64(1)<<53-1, int64(1)<<53-1, int64(1)<<53-1, int64(1)<<53-1, int64(1)<<53-1, int64(1)<<53-1, " i w1 r2")
	f.Add(uint8(0), uint8(64), int64(1), int64(150), int64(3), int64(0), int64(0), int64(0), int64(60), int64(900_000), int64(4), "")
	f.Add(uint8(3), uint8(64), int64(2), int64(600_000), int64(3), int64(0), int64(0), int64(0), int64(1)<<53-1, int64(900_000), int64(4), "")
	f.Add(uint8(2), uint8(128), int64(1), int64(1), int64(2), int64(0), int64(15), int64(0), int64(0), int64(2_000_000), int64(0), "")
	st := fuzzStore(f)
	f.Fuzz(func(t *testing.T, kind, flags uint8, seq, ask1, ask2, owed, win, delay, refund, demand, div int64, id string) {
		for _, n := range []*int64{&seq, &ask1, &ask2, &owed, &win, &delay, &refund, &demand, &div} {
			*n &= 1<<53 - 1
		}
		limit := fuzzLimits[int(kind)%len(fuzzLimits)]
		if len(id) > 512 {
			return
		}
		op := algo.Op{
			Owed: owed, Asks: []int64{ask1, ask2}, Partial: flags&1 != 0, Lost: flags&2 != 0, Reset: flags&4 != 0,
			Win: win, MaxDelay: delay, Refund: refund, Demand: demand, Div: div, ID: id,
		}
		if flags&16 != 0 { // a view
			op.View = wire.View{Level: -owed, Prev: refund, At: start - win&(1<<40-1), Born: 1 + seq>>1}
			op.Gen, op.Had, op.Keep, op.Back, op.Ahead, op.View.Next = demand, ask1, ask2, refund, ask1 > ask2, max(ask2, 0)
		}
		if flags&32 != 0 {
			op.RefundAt, op.Since = win, delay
		}
		if flags&64 != 0 {
			op.Floor, op.Upper, op.Queued, op.MaxLife = refund, seq&1 != 0, seq&2 != 0, max(0, seq>>2)
		}
		if flags&128 != 0 {
			op.Used, op.UsedBy = win, start-1e6+demand&(1<<21-1)
		}
		patient := delay > 0 && ask2 != 0 // two asks with a delay are refused: an answer has one delay
		if ask2 == 0 {
			op.Asks = op.Asks[:1]
		}
		env := wire.Envelope{}
		if flags&8 != 0 && seq > 0 {
			env = wire.Envelope{Key: "env", Epoch: "epoch", Seq: seq, TTL: time.Second}
		}
		ops := []wire.Op{{Key: "k", Limit: limit, Op: op}}
		if !patient {
			readBack(t, st, env, ops)
		}

		st.mini.FlushAll()
		keys, argv := wire.EncodeBatch(env, ops)
		raw, err := st.run(lua.TimedBatch, keys, append(argv, fmt.Sprint(start)))
		if err != nil {
			if !patient && (limit.Algorithm != hybridlimit.AlgSlidingLog || env.Seq == 0) {
				t.Fatalf("%+v: %v", op, err)
			}
			if got := st.dump(t); got != "" {
				t.Fatalf("%+v was refused (%v) and left %q", op, err, got)
			}
			return
		}
		if patient {
			t.Fatalf("%+v was not refused", op)
		}
		reply, err := wire.DecodeReply(raw, ops)
		if err != nil {
			t.Fatalf("%+v: %v", op, err)
		}
		for _, key := range st.mini.Keys() {
			if st.mini.TTL(key) <= 0 {
				t.Errorf("%+v left %s without a TTL", op, key)
			}
		}
		if a := reply.Answers[0]; a.Granted > limit.BurstSize() || a.Granted+a.Lease > limit.BurstSize() {
			t.Errorf("%+v got %+v", op, a)
		}
	})
}

// readBack checks that Lua reads a batch as Go encoded it.
func readBack(t *testing.T, st store, env wire.Envelope, ops []wire.Op) {
	t.Helper()
	keys, argv := wire.EncodeBatch(env, ops)
	raw, err := st.run(lua.ParsedBatch, keys, argv)
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	lines := raw.([]any)
	if want := fmt.Sprintf("%d %d", env.Seq, env.TTL.Milliseconds()); lines[0] != want {
		t.Fatalf("header %q, want %q", lines[0], want)
	}
	op := ops[0]
	if env.Seq == 0 && op.Plain() { // the short form leaves out the fields without an effect
		op.Op = algo.Op{Asks: op.Asks, Since: op.Since}
	}
	want := fmt.Sprintf("1 %d %t %t %t %d %d %d %d %d %d %d %d", op.Owed, op.Partial, op.Lost, op.Reset, op.Demand, op.Div,
		op.View.Born, op.View.Level, op.View.At, op.Gen, op.Had, op.Keep)
	for _, n := range op.Asks {
		want += fmt.Sprintf(" %d", n)
	}
	want += fmt.Sprintf(" w%d r%d b%d d%d p%d n%d s%d k%d a%t f%d u%t q%t l%d o%d e%d i%s", op.Win, op.Refund, op.RefundAt, op.MaxDelay, op.View.Prev, op.View.Next, op.Since, op.Back, op.Ahead, op.Floor, op.Upper && op.Div > 0, op.Queued && !op.Upper && op.Div > 0, op.MaxLife, op.Used, op.UsedBy, url.QueryEscape(op.ID))
	if got := lines[len(lines)-1]; got != want {
		t.Fatalf("op %q, want %q", got, want)
	}
}

// FuzzBatchText checks that a batch with any arguments is applied as a whole or refused as a
// whole, and that its answer is readable.
func FuzzBatchText(f *testing.F) {
	f.Add("1 0 0 1", "b 10000 1 2000000", "1 0 0 0 0 0 0 0 0 0 0 3", "k", "")
	f.Add("1 17 90000 1", "q 100000 1 500000", "1 0 0 0 0 0 0 0 0 0 0 2 d1500000", "env", "k")
	f.Add("1 0 0 1", "f 10 60000000 1", "1 3 0 0 0 0 0 0 0 0 0 w29383333", "k", "")
	f.Add("1 0 0 1", "s 1000000 86400000000 39", "1 0 0 0 0 8 5 9 0 0 0 p7", "k", "")
	f.Add("1 0 0 1", "l 10 60000000 1", "1 0 0 0 0 0 0 0 0 0 0 1 2 ia+b", "k", "")
	f.Add("1 99999999999999999999 1 1", "b 0 0 0", "2 -1", "", "k")
	st := fuzzStore(f)
	f.Fuzz(func(t *testing.T, head, limit, op, key1, key2 string) {
		st.mini.FlushAll()
		keys := []string{key1}
		if key2 != "" {
			keys = []string{key1, "epoch", key2}
		}
		raw, err := st.run(lua.TimedBatch, keys, []string{head, limit, op, fmt.Sprint(start)})
		if err != nil {
			if got := st.dump(t); got != "" {
				t.Fatalf("%q %q %q was refused (%v) and left %q", head, limit, op, err, got)
			}
			return
		}
		if _, texts := raw.(string); texts { // of plain asks
			return
		}
		if r, err := wire.DecodeReply(raw, make([]wire.Op, 1)); err != nil && len(r.Answers) == 0 {
			if _, none := wire.DecodeReply(raw, nil); none != nil {
				t.Fatalf("%q %q %q: %v", head, limit, op, err)
			}
		}
		for _, key := range st.mini.Keys() {
			if st.mini.TTL(key) <= 0 {
				t.Errorf("%q %q %q left %q without a TTL", head, limit, op, key)
			}
		}
	})
}

// DecodeState accepts the same states as Redis, and both treat them alike.
func FuzzState(f *testing.F) {
	for _, text := range []string{
		"1b2710 1e8480 0 643706cbd3000 1", "1b186a0 -5 3e8 643706cbd3000 1 t64 o2 p3 z5", "1q186a0 5 -1 643706cbd3000 1", "1f989680 a8212 1 0 1 0",
		"1s989680 a8212 1 5 1 0 z7", "", "1", "1b", "1x1 1 1 1 1", "1b1 1 1 1 1\n", "1b-1 +1 1_0 1 1", "1b186a0 5 0 643706cbd3000 1 z", "1b6acfc0 5 0 643706cbd3000 1 r3", "1b186a0 5 0 643706cbd3000 1 y5 o-3", "1b186a0 5 0 643706cbd3000 1 y5 o3", "1l1 1 1 1 1 1",
		"1b2710 -0 0 643706cbd3000 -0", "1b20000000000000 20000000000000 0 643706cbd3000 20000000000000",
	} {
		f.Add(text)
	}
	limits := map[byte]hybridlimit.Limit{
		'b': hybridlimit.TokenBucket(100, time.Second, 200), 'q': hybridlimit.LeakyQueue(10, time.Second, 5),
		'f': hybridlimit.FixedWindow(10, time.Minute), 's': hybridlimit.SlidingWindow(10, time.Minute),
	}
	st := fuzzStore(f)
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := wire.DecodeState(text)
		if ok {
			if again, ok := wire.DecodeState(lua.EncodeState(s)); !ok || again.Born != s.Born || again.Level != s.Level || again.Cur != s.Cur || again.Reset != s.Reset {
				t.Errorf("%q: %+v, written and read again %+v", text, s, again)
			}
		}
		for letter, limit := range limits {
			if err := st.mini.Set("k", text); err != nil {
				t.Fatal(err)
			}
			got := st.one(t, "k", limit, algo.Op{}, start)
			if readable := ok && s.Kind.Letter() == letter; (got.Born != 0) != readable {
				t.Errorf("%q: readable in Go is %t, Redis answers %+v", text, readable, got)
				continue
			}
			from := algo.State{}
			if ok {
				from = s
			}
			if _, want, _ := algo.LimitOf(limit).Apply(from, algo.Op{}, start); got != want {
				t.Errorf("%q under %v: %+v, in Go %+v", text, limit, got, want)
			}
		}
	})
}
