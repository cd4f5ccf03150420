package lua_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/lua"
)

// The encodings are what processes of several versions share: a change here
// is a new schema.
func TestEncodeBatchGolden(t *testing.T) {
	second, day := hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.TokenBucket(1, 24*time.Hour, 1)
	for _, tc := range []struct {
		name string
		env  lua.Envelope
		ops  []lua.Op
		keys []string
		argv []string
	}{
		{"nothing", lua.Envelope{}, nil, nil, []string{"1 0 0 0"}},
		{
			"AllowN(3), without an envelope",
			lua.Envelope{},
			[]lua.Op{{Key: "k", Limit: second, Op: algo.Op{Asks: []int64{3}}}},
			[]string{"k"},
			[]string{"1 0 0 1", "b 10000 1 2000000", "1 0 0 0 0 0 0 0 0 0 0 3"},
		},
		{
			"a sync of two keys under two limits",
			lua.Envelope{Key: "e", Epoch: "p", Seq: 17, TTL: 90 * time.Second},
			[]lua.Op{
				{Key: "a", Limit: second, Op: algo.Op{Owed: 7, Asks: []int64{1, 2}, Demand: 12_500, Div: 40, View: lua.View{Level: -5, At: start + 9, Born: start}, Gen: 1763, Had: 4, Keep: 3}},
				{Key: "b", Limit: day, Op: algo.Op{Asks: []int64{math.MaxInt64}, Partial: true}},
				{Key: "a", Limit: second},
			},
			[]string{"e", "p", "a", "b", "a"},
			[]string{
				"1 17 90000 2", "b 10000 1 2000000", "b 86400000000 1 86400000000",
				"1 7 0 12500 40 1763000000000000 -5 1763000000000009 1763 4 3 1 2",
				"2 0 1 0 0 0 0 0 0 0 0 9223372036854775807",
				"1 0 0 0 0 0 0 0 0 0 0",
			},
		},
	} {
		keys, argv := lua.EncodeBatch(tc.env, tc.ops)
		if !slices.Equal(keys, tc.keys) || !slices.Equal(argv, tc.argv) {
			t.Errorf("%s:\n%q\n%q\nwant\n%q\n%q", tc.name, keys, argv, tc.keys, tc.argv)
		}
	}
}

// The library reads what the codec wrote.
func TestEncodedBatchIsReadBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		rapid.Check(t, func(t *rapid.T) {
			any53 := rapid.Int64Range(0, 1<<53-1)
			env := lua.Envelope{Key: "e", Epoch: "p", Seq: rapid.Int64Range(1, 1<<53-1).Draw(t, "seq"), TTL: time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "ttl")) * time.Millisecond}
			var ops []lua.Op
			for range rapid.IntRange(1, 12).Draw(t, "ops") {
				ops = append(ops, lua.Op{Key: "k", Limit: rapid.SampledFrom(diffLimits).Draw(t, "limit"), Op: algo.Op{
					Owed: any53.Draw(t, "owed"), Asks: rapid.SliceOfN(any53, 0, 4).Draw(t, "asks"), Partial: rapid.Bool().Draw(t, "partial"),
					Demand: any53.Draw(t, "demand"), Div: any53.Draw(t, "div"),
					View: lua.View{Level: rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "level"), At: any53.Draw(t, "at"), Born: any53.Draw(t, "born")},
					Gen:  any53.Draw(t, "gen"), Had: any53.Draw(t, "had"), Keep: any53.Draw(t, "keep"),
				}})
			}
			keys, argv := lua.EncodeBatch(env, ops)
			raw, err := st.run(lua.ParsedBatch, keys, argv)
			if err != nil {
				t.Fatal(err)
			}
			got := raw.([]any)
			if want := fmt.Sprintf("%d %d", env.Seq, env.TTL.Milliseconds()); got[0] != want {
				t.Fatalf("header %q, want %q", got[0], want)
			}
			limits := got[1 : len(got)-len(ops)]
			for i, op := range ops {
				v, b := op.View, algo.BucketOf(op.Limit)
				rest := fmt.Sprintf(" %d %t %d %d %d %d %d %d %d %d", op.Owed, op.Partial, op.Demand, op.Div, v.Born, v.Level, v.At, op.Gen, op.Had, op.Keep)
				for _, n := range op.Asks {
					rest += fmt.Sprintf(" %d", n)
				}
				text := got[len(got)-len(ops)+i].(string)
				index := 0
				if _, err := fmt.Sscan(text, &index); err != nil || index < 1 || index > len(limits) || text != fmt.Sprint(index)+rest {
					t.Fatalf("op %d is %q, want a limit and %q", i, text, rest)
				}
				if want := fmt.Sprintf("%d %d %d", b.Unit, b.Refill, b.Cap); limits[index-1] != want {
					t.Fatalf("op %d has limit %q, want %q", i, limits[index-1], want)
				}
			}
		})
	})
}

func ints(values ...int64) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

func TestDecodeReply(t *testing.T) {
	one := lua.Answer{Granted: 1, Lease: 2, Life: 3, Level: -4, Retry: 5, Born: 6, Cap: 7}
	for _, tc := range []struct {
		name string
		raw  any
		ops  int
		want lua.Reply
	}{
		{"applied", ints(1, 0, 8, 9, 1, 2, 3, -4, 5, 6, 7), 1, lua.Reply{Epoch: 8, Now: 9, Answers: []lua.Answer{one}}},
		{"seen", ints(1, 1, 8, 9, 1, 2, 3, -4, 5, 6, 7), 1, lua.Reply{Seen: true, Epoch: 8, Now: 9, Answers: []lua.Answer{one}}},
		{"stale", ints(1, 2, 8, 9), 3, lua.Reply{Stale: true, Epoch: 8, Now: 9}},
		{"gap", ints(1, 4, 8, 9, 1, 2, 3, -4, 5, 6, 7), 1, lua.Reply{Gap: true, Epoch: 8, Now: 9, Answers: []lua.Answer{one}}},
		{"in the ledger", ints(1, 0, 8, 9, 1, 2, -1763, -4, 5, 6, 7), 1, lua.Reply{Epoch: 8, Now: 9, Answers: []lua.Answer{
			{Granted: 1, Lease: 2, Life: algo.MaxLease, Gen: 1763, Level: -4, Retry: 5, Born: 6, Cap: 7},
		}}},
		{"no ops", ints(1, 0, 0, 9), 0, lua.Reply{Now: 9}},
	} {
		got, err := lua.DecodeReply(tc.raw, tc.ops)
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
	for name, raw := range map[string]any{
		"nil": nil, "text": "OK", "empty": ints(), "short head": ints(1, 0, 8), "schema": ints(2, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7),
		"unknown status": ints(1, 8, 8, 9, 1, 2, 3, 4, 5, 6, 7), "seen and stale": ints(1, 3, 8, 9), "negative status": ints(1, -1, 8, 9, 1, 2, 3, 4, 5, 6, 7),
		"an op missing": ints(1, 0, 8, 9), "half an op": ints(1, 0, 8, 9, 1, 2, 3), "an op too many": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7),
		"stale with answers": ints(1, 2, 8, 9, 1, 2, 3, 4, 5, 6, 7), "text inside": append(ints(1, 0, 8), "9"), "a float": append(ints(1, 0, 8), 9.5),
		"nested": []any{ints(1, 0, 8, 9)}, "negative grant": ints(1, 0, 8, 9, -1, 2, 3, 4, 5, 6, 7), "negative retry": ints(1, 0, 8, 9, 1, 2, 3, 4, -5, 6, 7),
		"map of RESP3": map[any]any{int64(1): int64(0)},
	} {
		if got, err := lua.DecodeReply(raw, 1); !errors.Is(err, lua.ErrReply) || len(got.Answers) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// DecodeReply never panics, and what it takes can be acted on. The first
// character after a comma picks the type of an element.
func FuzzDecodeReply(f *testing.F) {
	f.Add("1,0,8,9,1,2,3,-4,5,6,7", 1)
	f.Add("1,2,8,9", 128)
	f.Add("1,7,0,0", 0)
	f.Add("", -1)
	f.Add("1,0,s,f", 0)
	f.Add("9223372036854775807,-9223372036854775808,0,0", math.MaxInt32)
	f.Fuzz(func(t *testing.T, text string, n int) {
		var raw []any
		for field := range strings.SplitSeq(text, ",") {
			var v int64
			switch _, err := fmt.Sscan(field, &v); {
			case err == nil:
				raw = append(raw, v)
			case field == "f":
				raw = append(raw, 1.5)
			case field == "n":
				raw = append(raw, nil)
			default:
				raw = append(raw, field)
			}
		}
		r, err := lua.DecodeReply(raw, n)
		if err != nil {
			if !errors.Is(err, lua.ErrReply) {
				t.Errorf("%v is no ErrReply", err)
			}
			return
		}
		if r.Seen && r.Stale || !r.Stale && len(r.Answers) != n || r.Stale && len(r.Answers) != 0 {
			t.Errorf("%d ops: %+v", n, r)
		}
		for _, a := range r.Answers {
			if a.Granted < 0 || a.Lease < 0 || a.Life < 0 || a.Retry < 0 || a.Born < 0 || a.Cap < 0 || a.Gen < 0 {
				t.Errorf("%+v", a)
			}
		}
	})
}
