package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// A plain ask is decided without the definitions of all other batches. TestLuaEqualsGo compares its answers with those of the Go twin.
func TestPlainAsk(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		limit := hybridlimit.TokenBucket(10, time.Second, 100)
		b := algo.BucketOf(limit)
		plain := algo.State{Kind: algo.KindBucket, Unit: b.Unit, Refill: b.Refill, Level: 3 * b.Unit, Last: start, Born: start - 1e6, Since: 97}
		with := func(change func(s *algo.State)) algo.State {
			s := plain
			change(&s)
			return s
		}
		one := algo.Op{Asks: []int64{1}}
		fixedWindow, minute := hybridlimit.FixedWindow(10, time.Minute), int64(60_000_000)
		window := algo.State{Kind: algo.KindFixed, Period: minute, Win: (start + 1000) / minute, Cur: 4, Prev: 9, Born: start - 1e6, Since: 97}
		of := func(change func(s *algo.State)) algo.State {
			s := window
			change(&s)
			return s
		}
		for _, tc := range []struct {
			name  string
			limit hybridlimit.Limit
			state algo.State
			op    algo.Op
			plain bool
		}{
			{"no state", limit, algo.State{}, one, true},
			{"a state", limit, plain, one, true},
			{"refused", limit, plain, algo.Op{Asks: []int64{50}}, true},
			{"above the burst", limit, plain, algo.Op{Asks: []int64{101}}, true},
			{"a leaky bucket", hybridlimit.LeakyBucket(10, time.Second, 100), plain, one, true},
			{"a refill of more than one", hybridlimit.TokenBucket(3_000_000, time.Second, 100), algo.State{}, one, true},
			{"debt", limit, with(func(s *algo.State) { s.Level = -1 }), one, false},
			{"a lease is out", limit, with(func(s *algo.State) { s.Out[0] = 5 }), one, true},
			{"a lease of 4 s is out", limit, with(func(s *algo.State) { s.Out[0], s.Span = 5, 2 }), one, true},
			{"a lease of 4 s was out", limit, with(func(s *algo.State) { s.Out, s.Span, s.Last = [2]int64{3, 90}, 2, start-18e5; s.Born = s.Last }), one, true},
			{"a lease of a later version", limit, with(func(s *algo.State) { s.Out[0], s.Span = 5, 3 }), one, true},
			{"a lease was out", limit, with(func(s *algo.State) { s.Out[1] = 5 }), one, true},
			{"a lease is out, and the ask is refused", limit, with(func(s *algo.State) { s.Out[0], s.Level = 5, 0 }), one, false},
			{"a poll was given out", limit, with(func(s *algo.State) { s.Slot = start + 5e6 }), one, false},
			{"it was reset", limit, with(func(s *algo.State) { s.Reset = start - 5 }), one, false},
			{"a field of a later version", limit, with(func(s *algo.State) { s.More = " y5" }), one, false},
			{"another limit", limit, with(func(s *algo.State) { s.Unit = 2 * b.Unit }), one, false},
			{"the clock stepped back", limit, with(func(s *algo.State) { s.Last = start + 3e6 }), one, false},
			{"two asks", limit, plain, algo.Op{Asks: []int64{1, 1}}, true},
			{"two asks, one refused", limit, plain, algo.Op{Asks: []int64{4, 2}}, true},
			{"no ask", limit, plain, algo.Op{}, false},
			{"an ask of nothing", limit, plain, algo.Op{Asks: []int64{0}}, false},
			{"a huge ask", limit, plain, algo.Op{Asks: []int64{4e15}}, true},
			{"an ask of 17 digits", limit, plain, algo.Op{Asks: []int64{1e16}}, false},
			{"in part", limit, plain, algo.Op{Asks: []int64{1}, Partial: true}, false},
			{"with a delay", limit, plain, algo.Op{Asks: []int64{1}, MaxDelay: 5}, false},
			{"a new limit", limit, plain, algo.Op{Asks: []int64{1}, Since: 5}, true},
			{"a new limit, of another rate", limit, with(func(s *algo.State) { s.Unit = 2 * b.Unit }), algo.Op{Asks: []int64{1}, Since: 5}, false},
			{"with units owed", limit, plain, algo.Op{Asks: []int64{1}, Owed: 1}, false},
			{"for a lease", limit, plain, algo.Op{Asks: []int64{1}, Demand: 5, Div: 2}, false},
			{"a queue", hybridlimit.LeakyQueue(10, time.Second, 100), algo.State{}, one, true},
			{"a queue in use", hybridlimit.LeakyQueue(10, time.Second, 100), with(func(s *algo.State) { s.Kind, s.Level = algo.KindQueue, -b.Unit }), one, true},
			{"a queue of a longer limit", hybridlimit.LeakyQueue(10, time.Second, 100), with(func(s *algo.State) { s.Kind, s.Level = algo.KindQueue, -200*b.Unit }), one, false},
			{"a fixed window", fixedWindow, algo.State{}, one, true},
			{"a fixed window in use", fixedWindow, window, one, true},
			{"a fixed window, refused", fixedWindow, window, algo.Op{Asks: []int64{9}}, true},
			{"the window after it", fixedWindow, of(func(s *algo.State) { s.Win-- }), one, true},
			{"a window long after it", fixedWindow, of(func(s *algo.State) { s.Win -= 5 }), one, true},
			{"a fixed window with debt", fixedWindow, of(func(s *algo.State) { s.Cur = 11 }), one, false},
			{"a fixed window after one with debt", fixedWindow, of(func(s *algo.State) { s.Prev = 11 }), one, false},
			{"a fixed window with leases", fixedWindow, of(func(s *algo.State) { s.Next = 1 }), one, false},
			{"a fixed window that was reset", fixedWindow, of(func(s *algo.State) { s.Reset = start }), one, false},
			{"a fixed window of the future", fixedWindow, of(func(s *algo.State) { s.Win++ }), one, false},
			{"another period", hybridlimit.FixedWindow(10, time.Hour), window, one, false},
			{"a sliding window", hybridlimit.SlidingWindow(10, time.Minute), algo.State{}, one, true},
			{"a sliding window in use", hybridlimit.SlidingWindow(10, time.Minute), of(func(s *algo.State) { s.Kind = algo.KindSliding }), one, true},
			{"a sliding window with long ticks", hybridlimit.SlidingWindow(1_000_000, 24*time.Hour), algo.State{}, one, true},
			{"a log", hybridlimit.SlidingLog(10, time.Minute), algo.State{}, one, false},
		} {
			text := ""
			if tc.state.Born != 0 {
				text = lua.EncodeState(tc.state)
				st.set(t, "k", text)
			} else {
				st.del(t, "k")
			}
			ops := []wire.Op{{Key: "k", Limit: tc.limit, Op: tc.op}}
			keys, argv := wire.EncodeBatch(wire.Envelope{}, ops)
			raw, err := st.run(lua.PlainOnly, keys, append(argv, fmt.Sprint(start+1000)))
			if (err == nil) != tc.plain {
				t.Errorf("%s: %v, %v; want a plain ask: %t", tc.name, raw, err, tc.plain)
				continue
			}
			if !tc.plain {
				if got := st.get(t, "k"); got != text {
					t.Errorf("%s: the state was %q and is %q", tc.name, text, got)
				}
				continue
			}
			reply, err := wire.DecodeReply(raw, ops)
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			next, want, dirty := algo.LimitOf(tc.limit).Apply(tc.state, tc.op, start+1000)
			if reply.Answers[0] != want || reply.Now != start+1000 {
				t.Errorf("%s: %+v, want %+v", tc.name, reply, want)
			}
			if dirty {
				text = lua.EncodeState(next)
			}
			if got := st.get(t, "k"); got != text {
				t.Errorf("%s: the state is %q, want %q", tc.name, got, text)
			}
		}
		for _, argv := range [][]string{
			{"=b2710 1e8480 0"},
			{"=b2710 1e8480 1,0"},
			{"=b2710 1e8480 "},
			{"=b2710 1e8480 x"},
			{"=b2710 1e8480 20000000000000"},
			{"=b2710 1e8480 1 20000000000000"},
			{"=b0 1 1"},
			{"=b1r0 1 1"},
			{"=b2 1 1"},
			{"=b1 20000000000001 1"},
			{"=b1 200000000000000 1"},
			{"=f0 1 1"},
			{"=f1 0 1"},
			{"=f10000000000001 1 1"},
			{"=s989680 2540be400000 1"},
			{"=l989680 5 1"},
			{"=b2710 1e8480 1", "1"},
			{"1"},
			{"1 0 0 1", "b 1 1 1", "1 0 0 0 0 0 0 0 0 0 0 1"},
			{},
		} {
			if raw, err := st.run(lua.PlainOnly, []string{"k"}, append(argv, fmt.Sprint(start))); err == nil {
				t.Errorf("%q: %v", argv, raw)
			}
		}
	})
}

// Redis refuses as a whole a batch of plain asks that it cannot read, and one that is too large for exact numbers.
func TestPlainAsksRefused(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.one(t, "k", hybridlimit.TokenBucket(100, time.Second, 200), algo.Op{Asks: []int64{1}}, 0)
		before := st.dump(t)
		for name, texts := range map[string][]string{
			"no text": {}, "a key too many": {"=b2710 1e8480 1"}, "a text too many": {"=b2710 1e8480 1", "1", "1"}, "no limit": {"1", "=b2710 1e8480 1"},
			"words": {"=b2710 1e8480 1", "one"}, "no asks": {"=b2710 1e8480 1", ""}, "a long ask": {"=b2710 1e8480 1", "1 fffffffffffffff"},
			"no unit": {"=b0 1e8480 1", "1"}, "no refill": {"=b2710r0 1e8480 1", "1"}, "no room for a unit": {"=b2710 1 1", "1"},
			"a limit out of range": {"=b1 20000000000000 1", "1"}, "a long limit": {"=b1 200000000000000 1", "1"}, "a long since": {"=b2710 1e8480s200000000000000 0", "1"},
			"unknown kind": {"=x2710 1e8480 1", "1"}, "a log": {"=l2710 1e8480 1", "1"}, "a large window": {"=s989680 2540be400000 1", "1"},
		} {
			if raw, err := st.run(lua.Batch, []string{"k", "other"}, texts); err == nil || !strings.Contains(err.Error(), "HLBATCH ") {
				t.Errorf("%s: %v, %v, want HLBATCH", name, raw, err)
			}
			if after := st.dump(t); after != before {
				t.Errorf("%s: before:\n%s\nafter:\n%s", name, before, after)
			}
		}
	})
}

// A key may come twice in a batch of plain asks, as in any other batch.
func TestPlainAsksOnAKeyTwice(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		raw, err := st.run(lua.TimedBatch, []string{"k", "k", "k"}, []string{"=b186a0 7a120 1", "1 1,9", "=b186a0 7a120 2", fmt.Sprint(start)})
		ops := make([]wire.Op, 4)
		for i, asks := range [][]int64{{1}, {1, 1}, {9}, {2}} {
			ops[i] = wire.Op{Key: fmt.Sprint(i), Limit: hybridlimit.TokenBucket(10, time.Second, 5), Op: algo.Op{Asks: asks}}
		}
		reply, err2 := wire.DecodeReply(raw, ops)
		if err != nil || err2 != nil {
			t.Fatal(raw, err, err2)
		}
		for i, want := range []int64{1, 2, 0, 2} {
			if a := reply.Answers[i]; a.Granted != want {
				t.Errorf("op %d: %+v, want %d granted", i, a, want)
			}
		}
		if got, want := st.get(t, "k"), bucketText(100_000, 0, 0, start, 5); got != want {
			t.Errorf("the state is %q, want %q", got, want)
		}
	})
}
