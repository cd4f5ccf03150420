package wire_test

import (
	"strconv"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

func BenchmarkDecodeReply(b *testing.B) {
	for _, size := range []int{1, wire.MaxOps} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			raw := []any{int64(1), int64(0), start, start}
			ops := blank(size)
			for range size {
				raw = append(raw, int64(1), int64(20), int64(1_000_000), int64(1_234_567), int64(0), start)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.DecodeReply(raw, ops); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/exchange")
		})
	}
}
