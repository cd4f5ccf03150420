package wire_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

func TestDecodeBeatTrustsNothing(t *testing.T) {
	good := []any{int64(3), int64(17), int64(18), int64(2), int64(16)}
	want := wire.Beat{Alive: 3, Before: 17, Now: 18, Flag: wire.Flag{Switch: 2, At: 16}}
	if b, err := wire.DecodeBeat(good); err != nil || b != want {
		t.Fatalf("%+v, %v", b, err)
	}
	with := func(i int, v any) []any {
		out := slices.Clone(good)
		out[i] = v
		return out
	}
	for _, raw := range []any{
		nil, "OK", int64(1),
		[]any{},
		good[:4], append(slices.Clone(good), int64(1)), with(0, int64(-1)), with(3, "2"),
		with(4, nil), with(1, 17.5),
		map[any]any{"a": 1},
		with(2, int64(math.MinInt64)), with(2, []any{int64(1)}), errors.New("x"),
	} {
		if b, err := wire.DecodeBeat(raw); !errors.Is(err, wire.ErrReply) || b != (wire.Beat{}) {
			t.Errorf("%v: %+v, %v", raw, b, err)
		}
		if f, err := wire.DecodeSwitch(raw); !errors.Is(err, wire.ErrReply) || f != (wire.Flag{}) {
			t.Errorf("%v: %+v, %v", raw, f, err)
		}
	}
}
