package main

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

func TestBucketsFollowEachOther(t *testing.T) {
	for i := range buckets - 1 {
		top := bucketTop(i)
		if got := bucketOf(top); got != i {
			t.Fatalf("bucketOf(bucketTop(%d) = %v) = %d", i, top, got)
		}
		if got := bucketOf(top + 1); got != i+1 {
			t.Fatalf("bucketOf(%v), just above bucket %d, = %d", top+1, i, got)
		}
		if below := bucketTop(max(i-1, 0)); float64(top) > float64(below+1)*1.125 {
			t.Errorf("bucket %d reaches from %v to %v: wider than 1/8", i, below+1, top)
		}
	}
	if got := bucketOf(time.Hour); got != buckets-1 {
		t.Errorf("bucketOf(1h) = %d, want the last, %d", got, buckets-1)
	}
}

func TestQuantilesAreWithinAnEighth(t *testing.T) {
	random := testenv.Rand(t)
	var whole, first, second histogram
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(1) << random.IntN(35)
		d += time.Duration(random.Int64N(int64(d)))
		all = append(all, d)
		whole.add(d)
		if i%3 == 0 {
			first.add(d)
		} else {
			second.add(d)
		}
	}
	var merged histogram
	merged.merge(first.sparse())
	merged.merge(second.sparse())
	if merged != whole {
		t.Error("two merged histograms differ from one that counted everything")
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 1} {
		exact := all[int(q*float64(len(all)-1))]
		if got := whole.quantile(q); got < exact || float64(got) > 1.125*float64(exact) {
			t.Errorf("quantile(%v) = %v, exactly it is %v", q, got, exact)
		}
	}
}

func TestEmptyHistogram(t *testing.T) {
	var h histogram
	if got := h.quantile(0.99); got != 0 {
		t.Errorf("quantile of nothing = %v", got)
	}
	h.add(-time.Second) // a clock that misbehaves
	if got := h.quantile(1); got != 0 {
		t.Errorf("quantile = %v after a negative duration, want 0", got)
	}
}
