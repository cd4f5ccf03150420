package wire_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// holding is a message with one op of each form.
var holding = permits.Message{
	Process: "a", Number: 7, After: 5, Epoch: 1_763_000_000_000_000, Period: 1_000_000,
	Ops: []permits.Op{
		{Limit: 10, Keep: 2, Want: 3, First: 1, Spare: 4, Had: 2, Procs: 6},
		{Limit: 1, Procs: 1, Rejoin: true, Reset: true, Claims: []permits.Claim{{Process: "b", Number: 9}, {Process: "c-D_1", Number: 10}}},
	},
}

func TestEncodePermits(t *testing.T) {
	keys, argv := wire.EncodePermits("m", []string{"k", "l"}, holding)
	if want := []string{"m", "k", "l"}; !slices.Equal(keys, want) {
		t.Errorf("the keys are %q, want %q", keys, want)
	}
	want := []string{"1 a 7 5 1763000000000000 1000000", "10 2 3 1 4 2 6 0", "1 0 0 0 0 0 1 3 b 9 c-D_1 10"}
	if !slices.Equal(argv, want) {
		t.Errorf("the arguments are %q, want %q", argv, want)
	}
}

func TestDecodePermitsTrustsNothing(t *testing.T) {
	good := []any{int64(9), int64(4), int64(4), int64(1), int64(0), int64(1), "b 3 c 4", int64(0), int64(0), int64(-2), int64(5), int64(2), ""}
	want := permits.Answer{Epoch: 9, Replies: []permits.Reply{
		{Booked: 4, Usable: 4, Free: 1, Scarce: true, Holders: []permits.Claim{{Process: "b", Number: 3}, {Process: "c", Number: 4}}},
		{Free: -2, Learns: 5, Lost: true},
	}}
	if a, err := wire.DecodePermits(good, holding); err != nil || !reflect.DeepEqual(a, want) {
		t.Fatalf("%+v, %v; want %+v", a, err, want)
	}
	with := func(i int, v any) []any {
		out := slices.Clone(good)
		out[i] = v
		return out
	}
	for name, raw := range map[string]any{
		"nil": nil, "text": "OK", "no list": map[any]any{"a": 1}, "empty": []any{}, "short": good[:12], "long": append(slices.Clone(good), int64(1)),
		"epoch below 0": with(0, int64(-1)), "epoch is text": with(0, "9"),
		"fewer than it keeps": with(1, int64(1)), "more than it asked for": with(1, int64(10)), "huge": with(1, int64(math.MaxInt64)),
		"usable above booked": with(2, int64(5)), "usable below granted": with(2, int64(1)), "granted above the limit": with(3, int64(-1)),
		"free is a fraction": with(3, 1.5), "free below 2^53": with(3, int64(math.MinInt64)), "learns below 0": with(4, int64(-1)),
		"unknown flag": with(5, int64(8)), "flag below 0": with(5, int64(-1)),
		"holders are a number": with(6, int64(1)), "half a holder": with(6, "b"), "number of a holder": with(6, "b x"), "number below 0": with(6, "b -1"),
		"number above 2^53": with(6, "b 99999999999999999"), "name of a holder": with(6, "b:c 1"), "two spaces": with(6, "b  3"),
		"long name": with(6, strings.Repeat("b", 65)+" 1"), "too many": with(6, strings.Repeat("b 1 ", 5000)+"b 1"), "holders without a refusal": with(12, "b 1"),
	} {
		if a, err := wire.DecodePermits(raw, holding); !errors.Is(err, wire.ErrReply) || !reflect.DeepEqual(a, permits.Answer{}) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// FuzzPermitsReplies checks that every reply decodes to an answer within bounds, or to an
// error.
func FuzzPermitsReplies(f *testing.F) {
	f.Add([]byte{173, 9, 4, 4, 1, 0, 1, 130, 3, 98, 32, 51, 0, 0, 2, 5, 2, 130, 0})
	f.Add([]byte{160})
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, _ := values(data, 4)
		a, err := wire.DecodePermits(raw, holding)
		if err != nil {
			if !errors.Is(err, wire.ErrReply) {
				t.Errorf("%v: %v", raw, err)
			}
			return
		}
		for i, r := range a.Replies {
			op := holding.Ops[i]
			if r.Booked < op.Keep || r.Booked > op.Keep+op.Want+op.Spare || r.Usable < 0 || r.Usable > r.Booked || r.Learns < 0 || len(r.Holders) > permits.MaxHolders {
				t.Errorf("%v: %+v", raw, r)
			}
		}
	})
}

func TestDecodeHolding(t *testing.T) {
	if h, ok := wire.DecodeHolding("1 7 20 0"); !ok || h != (wire.Holding{Total: 7, Scarce: 20}) {
		t.Errorf("%+v, %v", h, ok)
	}
	for _, bad := range []string{"", "1", "1 7 20", "2 7 20 0", "1 7 20 0 0", "1 -7 20 0", "1 7 20 x", "1 7  20", "1 7 20 99999999999999999999"} {
		if h, ok := wire.DecodeHolding(bad); ok {
			t.Errorf("%q: %+v", bad, h)
		}
	}
}
