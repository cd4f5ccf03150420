package main

import (
	"math/bits"
	"time"
)

// A histogram counts durations in buckets that are at most 1/8 of their value
// wide: precise enough for a quantile, small enough to send every second.
const (
	subBits = 3              // 2³ buckets per power of two
	buckets = 34 << subBits  // the last one starts at 2³⁶ ns, over a minute
	sub     = 1<<subBits - 1 // mask
)

type histogram struct {
	counts [buckets]int64
	total  int64
	max    time.Duration
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(d)]++
	h.total++
	h.max = max(h.max, d)
}

// bucketOf numbers the values below 16 ns one by one, and from there on by
// their four leading bits.
func bucketOf(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-subBits-1)
	return min(shift<<subBits+int(d>>shift), buckets-1)
}

// bucketTop is the longest duration in a bucket.
func bucketTop(i int) time.Duration {
	if i < 2<<subBits {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	return time.Duration((i&sub+sub+2)<<shift) - 1
}

// quantile is the duration that a share q of all stays within, at most 1/8 too
// long; 0 when nothing was counted.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q*float64(h.total-1)) + 1
	for i, n := range h.counts {
		if rank -= n; rank <= 0 && n > 0 {
			return min(bucketTop(i), h.max)
		}
	}
	return h.max
}

// sparse is the histogram as a message carries it.
type sparse struct {
	Counts map[int]int64 `json:"counts"`
	Max    time.Duration `json:"max"`
}

func (h *histogram) sparse() sparse {
	s := sparse{Counts: map[int]int64{}, Max: h.max}
	for i, n := range h.counts {
		if n > 0 {
			s.Counts[i] = n
		}
	}
	return s
}

func (h *histogram) merge(s sparse) {
	for i, n := range s.Counts {
		if i >= 0 && i < buckets {
			h.counts[i] += n
			h.total += n
		}
	}
	h.max = max(h.max, s.Max)
}
