package shards_test

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/shards"
)

func TestCount(t *testing.T) {
	for maxKeys, want := range map[int]int{
		1: 1, 2: 1, 1000: 1, 2047: 1, 2048: 2, 4095: 2, 4096: 4, 65535: 32, 65536: 64, 100_000: 64, 1 << 30: 256,
	} {
		for cores, most := range map[int]int{1: 4, 2: 8, 3: 16, 16: 64, 200: 256} {
			if got := shards.Count(maxKeys, cores); got != min(want, most) {
				t.Errorf("%d keys, %d cores: %d shards, want %d", maxKeys, cores, got, min(want, most))
			}
		}
	}
}
