package lua_test

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	_ "github.com/hybridlimit/hybridlimit/internal/rapidseed"
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
				{Key: "a", Limit: second, Op: algo.Op{Lost: true}},
			},
			[]string{"e", "p", "a", "b", "a", "a"},
			[]string{
				"1 17 90000 2", "b 10000 1 2000000", "b 86400000000 1 86400000000",
				"1 7 0 12500 40 1763000000000000 -5 1763000000000009 1763 4 3 1 2",
				"2 0 1 0 0 0 0 0 0 0 0 9223372036854775807",
				"1 0 0 0 0 0 0 0 0 0 0", "1 0 2 0 0 0 0 0 0 0 0",
			},
		},
		{
			"every kind, and what is seldom said",
			lua.Envelope{},
			[]lua.Op{
				{Key: "q", Limit: hybridlimit.LeakyQueue(10, time.Second, 5), Op: algo.Op{Asks: []int64{2}, MaxDelay: 1_500_000}},
				{Key: "f", Limit: hybridlimit.FixedWindow(10, time.Minute), Op: algo.Op{Owed: 3, Win: 29383333}},
				{Key: "s", Limit: hybridlimit.SlidingWindow(1_000_000, 24*time.Hour), Op: algo.Op{View: lua.View{Level: 5, Prev: 7, At: 9, Born: 8}}},
				{Key: "l", Limit: hybridlimit.SlidingLog(10, time.Minute), Op: algo.Op{Asks: []int64{1, 2}, ID: "a b"}},
				{Key: "l", Limit: hybridlimit.SlidingLog(10, time.Minute), Op: algo.Op{Reset: true, Refund: 6}},
				{Key: "f", Limit: hybridlimit.FixedWindow(10, time.Minute), Op: algo.Op{Owed: 3, Win: 29383333, Refund: 2, RefundAt: 29383332}},
			},
			[]string{"q", "f", "s", "l", "l", "f"},
			[]string{
				"1 0 0 4", "q 100000 1 500000", "f 10 60000000 1", "s 1000000 86400000000 39", "l 10 60000000 1",
				"1 0 0 0 0 0 0 0 0 0 0 2 d1500000", "2 3 0 0 0 0 0 0 0 0 0 w29383333", "3 0 0 0 0 8 5 9 0 0 0 p7",
				"4 0 0 0 0 0 0 0 0 0 0 1 2 ia+b", "4 0 4 0 0 0 0 0 0 0 0 r6",
				"2 3 0 0 0 0 0 0 0 0 0 w29383333 r2 b29383332",
			},
		},
	} {
		keys, argv := lua.EncodeBatch(tc.env, tc.ops)
		if !slices.Equal(keys, tc.keys) || !slices.Equal(argv, tc.argv) {
			t.Errorf("%s:\n%q\n%q\nwant\n%q\n%q", tc.name, keys, argv, tc.keys, tc.argv)
		}
	}
}

// Limits of every algorithm, none of them a log's: these have no envelope.
var codecLimits = append([]hybridlimit.Limit{
	hybridlimit.LeakyQueue(3, 7*time.Second, 2), hybridlimit.FixedWindow(5, time.Minute), hybridlimit.SlidingWindow(1_000_000, 24*time.Hour),
}, diffLimits...)

// limitText is what ParsedBatch makes of a limit.
func limitText(l hybridlimit.Limit) string {
	k := algo.LimitOf(l)
	unit, full := k.Unit(), k.Full()
	return fmt.Sprintf("%c %d %d", k.Kind.Letter(), unit, full)
}

// The library reads what the codec wrote.
func TestEncodedBatchIsReadBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		rapid.Check(t, func(t *rapid.T) {
			any53 := rapid.Int64Range(0, 1<<53-1)
			some := rapid.OneOf(rapid.Just(int64(0)), any53)
			env := lua.Envelope{Key: "e", Epoch: "p", Seq: rapid.Int64Range(1, 1<<53-1).Draw(t, "seq"), TTL: time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "ttl")) * time.Millisecond}
			var ops []lua.Op
			for range rapid.IntRange(1, 12).Draw(t, "ops") {
				ops = append(ops, lua.Op{Key: "k", Limit: rapid.SampledFrom(codecLimits).Draw(t, "limit"), Op: algo.Op{
					Owed: any53.Draw(t, "owed"), Asks: rapid.SliceOfN(any53, 0, 4).Draw(t, "asks"), Partial: rapid.Bool().Draw(t, "partial"),
					Lost:   rapid.Bool().Draw(t, "lost"),
					Demand: any53.Draw(t, "demand"), Div: any53.Draw(t, "div"),
					Reset: rapid.Bool().Draw(t, "reset"), Win: some.Draw(t, "win"), Refund: some.Draw(t, "refund"), RefundAt: some.Draw(t, "refund at"), MaxDelay: some.Draw(t, "max delay"), Since: some.Draw(t, "since"),
					ID:   rapid.StringN(0, 12, -1).Draw(t, "id"),
					View: lua.View{Prev: some.Draw(t, "prev"), Level: rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "level"), At: any53.Draw(t, "at"), Born: any53.Draw(t, "born")},
					Gen:  any53.Draw(t, "gen"), Had: any53.Draw(t, "had"), Keep: any53.Draw(t, "keep"),
				}})
				if op := &ops[len(ops)-1]; len(op.Asks) > 1 {
					op.MaxDelay = 0
				}
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
				v := op.View
				rest := fmt.Sprintf(" %d %t %t %t %d %d %d %d %d %d %d %d", op.Owed, op.Partial, op.Lost, op.Reset, op.Demand, op.Div, v.Born, v.Level, v.At, op.Gen, op.Had, op.Keep)
				for _, n := range op.Asks {
					rest += fmt.Sprintf(" %d", n)
				}
				rest += fmt.Sprintf(" w%d r%d b%d d%d p%d s%d i%s", op.Win, op.Refund, op.RefundAt, op.MaxDelay, v.Prev, op.Since, url.QueryEscape(op.ID))
				text := got[len(got)-len(ops)+i].(string)
				index := 0
				if _, err := fmt.Sscan(text, &index); err != nil || index < 1 || index > len(limits) || text != fmt.Sprint(index)+rest {
					t.Fatalf("op %d is %q, want a limit and %q", i, text, rest)
				}
				if want := limitText(op.Limit); limits[index-1] != want {
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
	one := lua.Answer{Granted: 1, Lease: 2, Life: 3, Level: -4, Retry: 5, Born: 6, Cap: 7, Delay: 10, Refill: 11, Ends: 12}
	for _, tc := range []struct {
		name string
		raw  any
		ops  int
		want lua.Reply
	}{
		{"applied", ints(1, 0, 8, 9, 1, 2, 3, -4, 5, 6, 7, 10, 11, 12), 1, lua.Reply{Epoch: 8, Now: 9, Answers: []lua.Answer{one}}},
		{"seen", ints(1, 1, 8, 9, 1, 2, 3, -4, 5, 6, 7, 10, 11, 12), 1, lua.Reply{Seen: true, Epoch: 8, Now: 9, Answers: []lua.Answer{one}}},
		{"refused", ints(1, 3, 0, 9, 0, 0, 3, -4, 5, 6, 7, 10, 11, 12), 1, lua.Reply{Refused: true, Now: 9, Answers: []lua.Answer{
			{Life: 3, Level: -4, Retry: 5, Born: 6, Cap: 7, Delay: 10, Refill: 11, Ends: 12},
		}}},
		{"stale", ints(1, 2, 8, 9), 3, lua.Reply{Stale: true, Epoch: 8, Now: 9}},
		{"gap", ints(1, 4, 8, 9, 1, 2, 3, -4, 5, 6, 7, 10, 11, 12), 1, lua.Reply{Gap: true, Epoch: 8, Now: 9, Answers: []lua.Answer{one}}},
		{"in the ledger", ints(1, 0, 8, 9, 1, 2, -1763, -4, 5, 6, 7, 10, 11, 12), 1, lua.Reply{Epoch: 8, Now: 9, Answers: []lua.Answer{
			{Granted: 1, Lease: 2, Life: algo.MaxLease, Gen: 1763, Level: -4, Retry: 5, Born: 6, Cap: 7, Delay: 10, Refill: 11, Ends: 12},
		}}},
		{"dropped", ints(1, 0, 8, 9, 1, 2, 3, -4, 5, 6, 7, -1, 11, 12), 1, lua.Reply{Epoch: 8, Now: 9, Answers: []lua.Answer{
			{Granted: 1, Lease: 2, Life: 3, Level: -4, Retry: 5, Born: 6, Cap: 7, Refill: 11, Ends: 12, Dropped: true},
		}}},
		{"no ops", ints(1, 0, 0, 9), 0, lua.Reply{Now: 9}},
	} {
		got, err := lua.DecodeReply(tc.raw, tc.ops)
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
	for name, raw := range map[string]any{
		"nil": nil, "text": "OK", "empty": ints(), "short head": ints(1, 0, 8), "schema": ints(2, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12),
		"unknown status": ints(1, 8, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "gap and refused": ints(1, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "refused without answers": ints(1, 3, 8, 9), "negative status": ints(1, -1, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12),
		"an op missing": ints(1, 0, 8, 9), "half an op": ints(1, 0, 8, 9, 1, 2, 3), "an op too many": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12),
		"stale with answers": ints(1, 2, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "text inside": append(ints(1, 0, 8), "9"), "a float": append(ints(1, 0, 8), 9.5),
		"nested": []any{ints(1, 0, 8, 9)}, "negative grant": ints(1, 0, 8, 9, -1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "negative retry": ints(1, 0, 8, 9, 1, 2, 3, 4, -5, 6, 7, 10, 11, 12),
		"negative delay": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, -2, 11, 12), "negative refill": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, -1, 12),
		"negative end": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, -1),
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
	f.Add("1,0,8,9,1,2,3,-4,5,6,7,-1,11,12", 1)
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
			if a.Granted < 0 || a.Lease < 0 || a.Life < 0 || a.Retry < 0 || a.Born < 0 || a.Cap < 0 || a.Gen < 0 || a.Delay < 0 || a.Refill < 0 || a.Ends < 0 {
				t.Errorf("%+v", a)
			}
		}
	})
}
