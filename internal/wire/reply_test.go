package wire_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

func ints(values ...int64) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// blank returns n ops, which are no plain asks.
func blank(n int) []wire.Op { return make([]wire.Op, n) }

func TestDecodeReply(t *testing.T) {
	one := wire.Answer{Granted: 1, Lease: 2, Life: 3, Level: -4, Retry: 5, Born: 6, Cap: 7, Delay: 10, Refill: 11, Ends: 12}
	for _, tc := range []struct {
		name string
		raw  any
		ops  int
		want wire.Reply
	}{
		{"applied", ints(1, 0, 8, 9, 1, 2, 3, -4, 5, 6, 7, 10, 11, 12), 1, wire.Reply{Epoch: 8, Now: 9, Answers: []wire.Answer{one}}},
		{"seen", ints(1, 1, 8, 9, 1, 2, 3, -4, 5, 6, 7, 10, 11, 12), 1, wire.Reply{Seen: true, Epoch: 8, Now: 9, Answers: []wire.Answer{one}}},
		{"refused", ints(1, 3, 0, 9, 0, 0, 3, -4, 5, 6, 7, 10, 11, 12), 1, wire.Reply{Refused: true, Now: 9, Answers: []wire.Answer{
			{Life: 3, Level: -4, Retry: 5, Born: 6, Cap: 7, Delay: 10, Refill: 11, Ends: 12},
		}}},
		{"stale", ints(1, 2, 8, 9), 3, wire.Reply{Stale: true, Epoch: 8, Now: 9}},
		{"gap", ints(1, 4, 8, 9, 1, 2, 3, -4, 5, 6, 7, 10, 11, 12), 1, wire.Reply{Gap: true, Epoch: 8, Now: 9, Answers: []wire.Answer{one}}},
		{"in the ledger", ints(1, 0, 8, 9, 1, 2, -1763, -4, 5, 6, 7, 10, 11, 12), 1, wire.Reply{Epoch: 8, Now: 9, Answers: []wire.Answer{
			{Granted: 1, Lease: 2, Life: algo.Generation, Gen: 1763, Level: -4, Retry: 5, Born: 6, Cap: 7, Delay: 10, Refill: 11, Ends: 12},
		}}},
		{"dropped", ints(1, 0, 8, 9, 1, 2, 3, -4, 5, 6, 7, -1, 11, 12), 1, wire.Reply{Epoch: 8, Now: 9, Answers: []wire.Answer{
			{Granted: 1, Lease: 2, Life: 3, Level: -4, Retry: 5, Born: 6, Cap: 7, Refill: 11, Ends: 12, Dropped: true},
		}}},
		{"no ops", ints(1, 0, 0, 9), 0, wire.Reply{Now: 9}},
	} {
		got, err := wire.DecodeReply(tc.raw, blank(tc.ops))
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
		"negative delay": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, -4, 11, 12), "negative refill": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, -1, 12),
		"negative end": ints(1, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7, 10, 11, -1),
		"map of RESP3": map[any]any{int64(1): int64(0)},
	} {
		if got, err := wire.DecodeReply(raw, blank(1)); !errors.Is(err, wire.ErrReply) || len(got.Answers) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// DecodeReply never panics, and the numbers that it accepts are not negative. The first
// character after a comma selects the type of an element.
func FuzzDecodeReply(f *testing.F) {
	f.Add("1,0,8,9,1,2,3,-4,5,6,7,-1,11,12", 1)
	f.Add("1,2,8,9", 128)
	f.Add("1,7,0,0", 0)
	f.Add("", -1)
	f.Add("1,0,s,f", 0)
	f.Add("9223372036854775807,-9223372036854775808,0,0", math.MaxInt32)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(0, min(n, 1000))
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
		r, err := wire.DecodeReply(raw, blank(n))
		if err != nil {
			if !errors.Is(err, wire.ErrReply) {
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
