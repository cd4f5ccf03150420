package wire_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Each key is read back as it was told, whatever its bytes.
func TestKeyLimitsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var told []wire.KeyLimit
		for range rapid.IntRange(1, 5).Draw(t, "keys") {
			told = append(told, wire.KeyLimit{
				Key: string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")), Text: rapid.SampledFrom([]string{"", "5/s burst 9", "3/min sliding window", "7 concurrent"}).Draw(t, "limit"),
				At: rapid.Int64Range(0, 1<<53).Draw(t, "at"),
			})
		}
		_, argv := wire.EncodeTellKeyLimits("k", "c", told, time.Hour)
		k, err := wire.DecodeKeyLimits([]any{int64(9), "1 7\n" + argv[2]})
		if err != nil || k.Now != 9 || k.Version != 7 || !slices.Equal(k.Of, told) {
			t.Errorf("%+v, %v; told %+v", k, err, told)
		}
	})
}

func TestDecodeKeyLimitsTrustsNothing(t *testing.T) {
	if k, err := wire.DecodeKeyLimits([]any{int64(9), ""}); err != nil || k.Now != 9 || k.Version != 0 {
		t.Errorf("none: %+v, %v", k, err)
	}
	for _, text := range []string{
		"x", "1", "1 \n", "1 x\n", "1 0\n", "2 5\n", "1 5\n5 1/s a", "1 5\n5 1/s\n", "1 5\n\n", "1 5\n-5 1/s a\n", "1 5\n5  a\n", "1 5\n5 1/s \n",
		"1 5\n5 1/s %zz\n", "1 5\n5 1/sé a\n", "1 5\n5 " + strings.Repeat("9", 257) + " a\n", "1 99999999999999999999\n", "1 5\n" + strings.Repeat("5 1/s a\n", 40000),
	} {
		if k, err := wire.DecodeKeyLimits([]any{int64(9), text}); !errors.Is(err, wire.ErrReply) {
			t.Errorf("%.60q: %+v, %v", text, k, err)
		}
	}
	for _, raw := range []any{nil, "OK", []any{}, []any{int64(1)}, []any{"1", ""}, []any{int64(1), int64(2)}, []any{int64(-1), ""}} {
		if _, err := wire.DecodeKeyLimits(raw); !errors.Is(err, wire.ErrReply) {
			t.Errorf("%v: %v", raw, err)
		}
	}
	if wire.FitsKeyLimit("") || !wire.FitsKeyLimit(strings.Repeat("%", 600)) || wire.FitsKeyLimit(strings.Repeat("%", 700)) {
		t.Error("the longest key is wrong")
	}
}
