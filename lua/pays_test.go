package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Payments are decided without the definitions of all other batches, if the state has neither debt nor a next poll, and the envelope is
// that of the batch before. TestLuaEqualsGo compares their answers with those of the Go twin.
func TestPayment(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		limit := hybridlimit.TokenBucket(10, time.Second, 100)
		b := algo.BucketOf(limit)
		plain := algo.State{Kind: algo.KindBucket, Unit: b.Unit, Refill: b.Refill, Level: 3 * b.Unit, Last: start, Born: start - 1e6, Since: 97}
		with := func(change func(s *algo.State)) algo.State {
			s := plain
			change(&s)
			return s
		}
		view := algo.View{Level: 50 * b.Unit, At: start - 5e5, Born: plain.Born}
		epoch, before := fmt.Sprint(start-2e6), fmt.Sprintf("1e6 %d 0 0 0 c%d", start-1000, start-9000)
		for _, tc := range []struct {
			name     string
			state    algo.State
			op       algo.Op
			envelope string
			plain    bool
		}{
			{"a state", plain, algo.Op{Owed: 2, Div: 4}, before, true},
			{"no state", algo.State{}, algo.Op{Owed: 2, Div: 4}, before, true},
			{"the view of the state", plain, algo.Op{Owed: 2, View: view}, before, true},
			{"a view of another state", plain, algo.Op{Owed: 2, View: algo.View{At: start, Born: start - 5}}, before, false},
			{"a view, and no state", algo.State{}, algo.Op{Owed: 2, View: view}, before, false},
			{"a view that is full by now, and no state", algo.State{}, algo.Op{Owed: 2, View: algo.View{Level: 90 * b.Unit, At: start + 1000 - 1e6, Born: 5}}, before, true},
			{"a view that is nearly full, and no state", algo.State{}, algo.Op{Owed: 2, View: algo.View{Level: 90*b.Unit - 1, At: start + 1000 - 1e6, Born: 5}}, before, false},
			{"a view in debt, and no state", algo.State{}, algo.Op{Owed: 2, View: algo.View{Level: -1, At: start - 1e9, Born: 5}}, before, false},
			{"an ask", plain, algo.Op{Asks: []int64{3}}, before, true},
			{"an ask with the view of the state", plain, algo.Op{Asks: []int64{1}, View: view}, before, true},
			{"an ask with a view of another state", plain, algo.Op{Asks: []int64{1}, View: algo.View{At: start, Born: start - 5}}, before, false},
			{"an ask that is refused", plain, algo.Op{Asks: []int64{4}}, before, false},
			{"less than a unit would be left", plain, algo.Op{Owed: 3}, before, false},
			{"debt", with(func(s *algo.State) { s.Level = -1 }), algo.Op{Owed: 1}, before, false},
			{"a lease is out", with(func(s *algo.State) { s.Out[0] = 5 }), algo.Op{Owed: 1}, before, true},
			{"an older lease is out", with(func(s *algo.State) { s.Out[1] = 5 }), algo.Op{Owed: 1, Div: 4}, before, true},
			{"a lease of 4 s is out", with(func(s *algo.State) { s.Out[0], s.Span = 5, 2 }), algo.Op{Owed: 1}, before, true},
			{"leases of 2 s were out", with(func(s *algo.State) { s.Out, s.Span, s.Last = [2]int64{3, 90}, 1, start-18e5; s.Born = s.Last }), algo.Op{Owed: 1}, before, true},
			{"leases of 4 s hold the refill back", with(func(s *algo.State) { s.Out, s.Span, s.Last = [2]int64{99, 0}, 2, start-3e6; s.Born = s.Last }), algo.Op{Owed: 2}, before, false},
			{"leases are out", with(func(s *algo.State) { s.Out = [2]int64{3, 5} }), algo.Op{Asks: []int64{2}}, before, true},
			{"leases were out", with(func(s *algo.State) { s.Out, s.Last = [2]int64{3, 90}, start-18e5; s.Born = s.Last }), algo.Op{Owed: 1}, before, true},
			{"old leases were out", with(func(s *algo.State) { s.Out, s.Last = [2]int64{3, 90}, start-5e6; s.Born = s.Last }), algo.Op{Owed: 1}, before, true},
			{"leases hold the refill back", with(func(s *algo.State) { s.Out, s.Last = [2]int64{99, 0}, start-9e5; s.Born = s.Last }), algo.Op{Owed: 2}, before, false},
			{"a poll was given out", with(func(s *algo.State) { s.Slot = start + 5e6 }), algo.Op{Owed: 1}, before, false},
			{"it was reset", with(func(s *algo.State) { s.Reset = start - 5 }), algo.Op{Owed: 1}, before, false},
			{"another limit", with(func(s *algo.State) { s.Unit = 2 * b.Unit }), algo.Op{Owed: 1}, before, false},
			{"the clock stepped back", with(func(s *algo.State) { s.Last = start + 3e6 }), algo.Op{Owed: 1}, before, false},
			{"no envelope", plain, algo.Op{Owed: 1}, "", false},
			{"the batch came before", plain, algo.Op{Owed: 1}, fmt.Sprintf("1e7 %d 0 0 0 c%d", start-1000, start-9000), false},
			{"a gap", plain, algo.Op{Owed: 1}, fmt.Sprintf("1e5 %d 0 0 0 c%d", start-1000, start-9000), false},
			{"an envelope of the future", plain, algo.Op{Owed: 1}, fmt.Sprintf("1e6 %d 0 0 0 c%d", start+5000, start+5000), false},
			{"an epoch out of range", plain, algo.Op{Owed: 1}, before, false},
			{"after a gap", plain, algo.Op{Owed: 1}, fmt.Sprintf("1g6 %d 0 0 0 c%d", start-1000, start-9000), true},
		} {
			for _, key := range []string{"k", "env", "epoch"} {
				st.del(t, key)
			}
			text := ""
			if tc.state.Born != 0 {
				text = lua.EncodeState(tc.state)
				st.set(t, "k", text)
			}
			if tc.envelope != "" {
				st.set(t, "env", tc.envelope)
			}
			st.set(t, "epoch", epoch)
			if tc.name == "an epoch out of range" {
				st.set(t, "epoch", "9007199254740993")
			}
			ops := []wire.Op{{Key: "k", Limit: limit, Op: tc.op}}
			keys, argv := wire.EncodeBatch(envelope(7), ops)
			raw, err := st.run(lua.PlainOnly, keys, append(argv, fmt.Sprint(start+1000)))
			if (err == nil) != tc.plain {
				t.Errorf("%s: %v, %v; want a payment: %t", tc.name, raw, err, tc.plain)
				continue
			}
			if !tc.plain {
				if got := st.get(t, "k") + st.get(t, "env"); got != text+tc.envelope {
					t.Errorf("%s: %q was written", tc.name, got)
				}
				continue
			}
			reply, err := wire.DecodeReply(raw, ops)
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			next, want, _ := b.Apply(tc.state, tc.op, start+1000)
			if reply.Answers[0] != want || reply.Now != start+1000 || fmt.Sprint(reply.Epoch) != epoch || reply.Seen || reply.Gap {
				t.Errorf("%s: %+v, want %+v", tc.name, reply, want)
			}
			envelope := fmt.Sprintf("1e7 %d %d 0 %d c%d", start+1000, want.Granted, want.Life, start-9000)
			if got := st.get(t, "k"); got != lua.EncodeState(next) || st.get(t, "env") != envelope {
				t.Errorf("%s: the state is %q, the envelope %q, want %q and %q", tc.name, got, st.get(t, "env"), lua.EncodeState(next), envelope)
			}
		}
		// The short way does not depend on the digits of the number of the batch.
		st.set(t, "env", before)
		for seq := int64(7); seq < 300; seq++ {
			keys, argv := wire.EncodeBatch(envelope(seq), []wire.Op{{Key: "many", Limit: hybridlimit.TokenBucket(10, time.Second, 1000), Op: algo.Op{Owed: 1}}})
			if raw, err := st.run(lua.PlainOnly, keys, append(argv, fmt.Sprint(start+1000))); err != nil {
				t.Fatalf("batch %d: %v, %v", seq, raw, err)
			}
		}
		// Sent again, it is not applied again.
		ops := []wire.Op{{Key: "k", Limit: limit, Op: algo.Op{Owed: 1}}, {Key: "k2", Limit: limit, Op: algo.Op{Owed: 5}}}
		st.set(t, "env", before)
		st.set(t, "k", lua.EncodeState(plain))
		first := st.batch(t, envelope(7), ops, start+1000)
		states := st.get(t, "k") + st.get(t, "k2")
		again := st.batch(t, envelope(7), ops, start+2000)
		if first.Seen || !again.Seen || st.get(t, "k")+st.get(t, "k2") != states {
			t.Errorf("first %+v, again %+v", first, again)
		}
		for name, argv := range map[string][]string{
			"no text":          {"e7 ea60 4"},
			"no limit":         {"e7 ea60 4", "1"},
			"a header of two":  {"e7 ea60", "=b2710 f4240 1"},
			"nothing owed":     {"e7 ea60 4", "=b2710 f4240 0"},
			"no life":          {"e7 0 4", "=b2710 f4240 1"},
			"half a view":      {"e7 ea60 4", "=b2710 f4240 1v5 5"},
			"words":            {"e7 ea60 4", "=b2710 f4240 x"},
			"more texts":       {"e7 ea60 4", "=b2710 f4240 1", "1"},
			"a long sequence":  {"e10000000000000007 ea60 4", "=b2710 f4240 1"},
			"a window":         {"e7 ea60 4", "=f989680 5 1"},
			"several payments": {"e7 ea60 4", "=b2710 f4240 1,1"},
			"several asks":     {"e7 ea60 4", "=b2710 f4240 +1 1"},
			"an ask and more":  {"e7 ea60 4", "=b2710 f4240 +1,1"},
			"two signs":        {"e7 ea60 4", "=b2710 f4240 ++1"},
		} {
			st.set(t, "env", before)
			left := st.dump(t)
			scripts := []lua.Script{lua.PlainOnly}
			if name != "nothing owed" && name != "a window" { // the rest of the script can read these
				scripts = append(scripts, lua.TimedBatch)
			}
			for _, script := range scripts {
				raw, err := st.run(script, []string{"env", "epoch", "k"}, append(slices.Clone(argv), fmt.Sprint(start+3000)))
				if err == nil || !strings.Contains(err.Error(), "HLBATCH") || st.dump(t) != left {
					t.Errorf("%s: %v, %v", name, raw, err)
				}
			}
		}
	})
}
