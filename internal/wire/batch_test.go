package wire_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// start is a time of Redis in µs: 2025-11-13, with as many digits as a time of today.
const start int64 = 1_763_000_000_000_000

// Processes of several versions share the encodings. A change here is a new schema.
func TestEncodeBatchGolden(t *testing.T) {
	second, day := hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.TokenBucket(1, 24*time.Hour, 1)
	for _, tc := range []struct {
		name string
		env  wire.Envelope
		ops  []wire.Op
		keys []string
		argv []string
	}{
		{"nothing", wire.Envelope{}, nil, nil, []string{"1 0 0 0"}},
		{
			"AllowN(3), without an envelope",
			wire.Envelope{},
			[]wire.Op{{Key: "k", Limit: second, Op: algo.Op{Asks: []int64{3}}}},
			[]string{"k"},
			[]string{"=b2710 1e8480 3"},
		},
		{
			"plain asks of every kind that has the form",
			wire.Envelope{},
			[]wire.Op{
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{3}, ID: "x"}},
				{Key: "c", Limit: second, Op: algo.Op{Asks: []int64{1, 255}}},
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{1}}},
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{1}, Since: 17}},
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{2}, Since: 18}},
				{Key: "r", Limit: hybridlimit.TokenBucket(3, 7*time.Second, 2), Op: algo.Op{Asks: []int64{1}}},
				{Key: "q", Limit: hybridlimit.LeakyQueue(10, time.Second, 5), Op: algo.Op{Asks: []int64{2}}},
				{Key: "f", Limit: hybridlimit.FixedWindow(10, time.Minute), Op: algo.Op{Asks: []int64{1}}},
				{Key: "s", Limit: hybridlimit.SlidingWindow(1_000_000, 24*time.Hour), Op: algo.Op{Asks: []int64{1 << 51}}},
			},
			[]string{"b", "c", "b", "r", "q", "f", "s"},
			[]string{
				"=b2710 1e8480 3,1", "1 ff", "=b2710 1e8480s11 1,2", "=b6acfc0r3 d59f80 1", "=q186a0 7a120 2",
				"=f3938700 a 1", "=s141dd76000r27 f4240 8000000000000",
			},
		},
		{
			"classes: a floor is no plain ask; only an op with a next poll tells that it takes no turn",
			wire.Envelope{},
			[]wire.Op{
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{3}, Floor: 40}},
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{3}, Upper: true}},
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{3}, Upper: true, Floor: 20, Div: 8}},
			},
			[]string{"b", "b", "b"},
			[]string{
				"1 0 0 1", "b 10000 1 2000000", "1 0 0 0 0 0 0 0 0 0 0 3 f40", "1 0 0 0 0 0 0 0 0 0 0 3", "1 0 0 0 8 0 0 0 0 0 0 3 f20 u1",
			},
		},
		{
			"a plain ask beside a log",
			wire.Envelope{},
			[]wire.Op{
				{Key: "b", Limit: second, Op: algo.Op{Asks: []int64{3}}},
				{Key: "l", Limit: hybridlimit.SlidingLog(10, time.Minute), Op: algo.Op{Asks: []int64{1}}},
			},
			[]string{"b", "l"},
			[]string{"1 0 0 2", "b 10000 1 2000000", "l 10 60000000 1", "1 0 0 0 0 0 0 0 0 0 0 3", "2 0 0 0 0 0 0 0 0 0 0 1"},
		},
		{
			"an ask too large for the form",
			wire.Envelope{},
			[]wire.Op{{Key: "k", Limit: second, Op: algo.Op{Asks: []int64{1 << 52}}}},
			[]string{"k"},
			[]string{"1 0 0 1", "b 10000 1 2000000", "1 0 0 0 0 0 0 0 0 0 0 4503599627370496"},
		},
		{
			"a sync of two keys under two limits",
			wire.Envelope{Key: "e", Epoch: "p", Seq: 17, TTL: 90 * time.Second},
			[]wire.Op{
				{Key: "a", Limit: second, Op: algo.Op{Owed: 7, Asks: []int64{1, 2}, Demand: 12_500, Div: 40, View: wire.View{Level: -5, At: start + 9, Born: start}, Gen: 1763, Had: 4, Keep: 3}},
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
			wire.Envelope{},
			[]wire.Op{
				{Key: "q", Limit: hybridlimit.LeakyQueue(10, time.Second, 5), Op: algo.Op{Asks: []int64{2}, MaxDelay: 1_500_000}},
				{Key: "f", Limit: hybridlimit.FixedWindow(10, time.Minute), Op: algo.Op{Owed: 3, Win: 29383333}},
				{Key: "s", Limit: hybridlimit.SlidingWindow(1_000_000, 24*time.Hour), Op: algo.Op{View: wire.View{Level: 5, Prev: 7, At: 9, Born: 8}}},
				{Key: "l", Limit: hybridlimit.SlidingLog(10, time.Minute), Op: algo.Op{Asks: []int64{1, 2}, ID: "a b"}},
				{Key: "l", Limit: hybridlimit.SlidingLog(10, time.Minute), Op: algo.Op{Reset: true, Refund: 6}},
				{Key: "f", Limit: hybridlimit.FixedWindow(10, time.Minute), Op: algo.Op{Owed: 3, Win: 29383333, Refund: 2, RefundAt: 29383332}},
				{Key: "b", Limit: second, Op: algo.Op{Gen: 1763, Had: 4, Keep: 1, Back: 3}},
			},
			[]string{"q", "f", "s", "l", "l", "f", "b"},
			[]string{
				"1 0 0 5", "q 100000 1 500000", "f 10 60000000 1", "s 1000000 86400000000 39", "l 10 60000000 1", "b 10000 1 2000000",
				"1 0 0 0 0 0 0 0 0 0 0 2 d1500000", "2 3 0 0 0 0 0 0 0 0 0 w29383333", "3 0 0 0 0 8 5 9 0 0 0 p7",
				"4 0 0 0 0 0 0 0 0 0 0 1 2 ia+b", "4 0 4 0 0 0 0 0 0 0 0 r6",
				"2 3 0 0 0 0 0 0 0 0 0 w29383333 r2 b29383332",
				"5 0 0 0 0 0 0 0 1763 4 1 k3",
			},
		},
	} {
		keys, argv := wire.EncodeBatch(tc.env, tc.ops)
		if !slices.Equal(keys, tc.keys) || !slices.Equal(argv, tc.argv) {
			t.Errorf("%s:\n%q\n%q\nwant\n%q\n%q", tc.name, keys, argv, tc.keys, tc.argv)
		}
	}
}
