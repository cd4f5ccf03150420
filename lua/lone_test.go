package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// A lone ask on a plain bucket is decided without the definitions of all other batches. TestLuaEqualsGo compares its answers with
// those of the Go twin.
func TestLoneAsk(t *testing.T) {
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
		for _, tc := range []struct {
			name  string
			limit hybridlimit.Limit
			state algo.State
			op    algo.Op
			lone  bool
		}{
			{"no state", limit, algo.State{}, one, true},
			{"a state", limit, plain, one, true},
			{"refused", limit, plain, algo.Op{Asks: []int64{50}}, true},
			{"above the burst", limit, plain, algo.Op{Asks: []int64{101}}, true},
			{"a leaky bucket", hybridlimit.LeakyBucket(10, time.Second, 100), plain, one, true},
			{"a refill of more than one", hybridlimit.TokenBucket(3_000_000, time.Second, 100), algo.State{}, one, true},
			{"debt", limit, with(func(s *algo.State) { s.Level = -1 }), one, false},
			{"a lease is out", limit, with(func(s *algo.State) { s.Out[0] = 5 }), one, false},
			{"a lease was out", limit, with(func(s *algo.State) { s.Out[1] = 5 }), one, false},
			{"a poll was given out", limit, with(func(s *algo.State) { s.Slot = start + 5e6 }), one, false},
			{"it was reset", limit, with(func(s *algo.State) { s.Reset = start - 5 }), one, false},
			{"a field of a later version", limit, with(func(s *algo.State) { s.More = " y5" }), one, false},
			{"another limit", limit, with(func(s *algo.State) { s.Unit = 2 * b.Unit }), one, false},
			{"the clock stepped back", limit, with(func(s *algo.State) { s.Last = start + 3e6 }), one, false},
			{"two asks", limit, plain, algo.Op{Asks: []int64{1, 1}}, false},
			{"no ask", limit, plain, algo.Op{}, false},
			{"an ask of nothing", limit, plain, algo.Op{Asks: []int64{0}}, false},
			{"a huge ask", limit, plain, algo.Op{Asks: []int64{9e15}}, true},
			{"an ask of 17 digits", limit, plain, algo.Op{Asks: []int64{1e16}}, false},
			{"in part", limit, plain, algo.Op{Asks: []int64{1}, Partial: true}, false},
			{"with a delay", limit, plain, algo.Op{Asks: []int64{1}, MaxDelay: 5}, false},
			{"a new limit", limit, plain, algo.Op{Asks: []int64{1}, Since: 5}, false},
			{"with units owed", limit, plain, algo.Op{Asks: []int64{1}, Owed: 1}, false},
			{"for a lease", limit, plain, algo.Op{Asks: []int64{1}, Demand: 5, Div: 2}, false},
			{"a queue", hybridlimit.LeakyQueue(10, time.Second, 100), algo.State{}, one, false},
			{"a window", hybridlimit.FixedWindow(10, time.Second), algo.State{}, one, false},
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
			raw, err := st.run(lua.LoneOnly, keys, append(argv, fmt.Sprint(start+1000)))
			if (err == nil) != tc.lone {
				t.Errorf("%s: %v, %v; want a lone ask: %t", tc.name, raw, err, tc.lone)
				continue
			}
			if !tc.lone {
				if got := st.get(t, "k"); got != text {
					t.Errorf("%s: the state was %q and is %q", tc.name, text, got)
				}
				continue
			}
			reply, err := wire.DecodeReply(raw, 1)
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
			{"1 0 0 1", "b 1 1 1", "1 0 0 0 0 0 0 0 0 0 0 1 1"},
			{"1 0 0 1 all", "b 1 1 1", "1 0 0 0 0 0 0 0 0 0 0 1"},
			{"1 0 0 1", "b 0 1 1", "1 0 0 0 0 0 0 0 0 0 0 1"},
			{"1 0 0 1", "b 1 0 1", "1 0 0 0 0 0 0 0 0 0 0 1"},
			{"1 0 0 1", "b 2 1 1", "1 0 0 0 0 0 0 0 0 0 0 1"},
			{"1 0 0 1", "b 1 1 9007199254740993", "1 0 0 0 0 0 0 0 0 0 0 1"},
			{"2 0 0 1", "b 1 1 1", "1 0 0 0 0 0 0 0 0 0 0 1"},
			{"1 0 0 1", "b 1 1 1", "2 0 0 0 0 0 0 0 0 0 0 1"},
			{"1 0 0 1", "b 1 1 1"},
			{},
		} {
			if raw, err := st.run(lua.LoneOnly, []string{"k"}, append(argv, fmt.Sprint(start))); err == nil {
				t.Errorf("%q: %v", argv, raw)
			}
		}
	})
}
