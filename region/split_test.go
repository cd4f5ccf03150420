package region

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

func equal(n int64) map[string]share {
	out := map[string]share{}
	for i := range n {
		out[fmt.Sprint(i)] = share{1, n}
	}
	return out
}

// TestDivide has the parts of common limits.
func TestDivide(t *testing.T) {
	for _, tc := range []struct {
		limit  hybridlimit.Limit
		n      int64
		escrow float64
		burst  int64
		under  int64
	}{
		// For a burst of a second, a half of what the escrow leaves is for two regions; the reserve has the rest.
		{hybridlimit.PerSecond(900), 2, 0.25, 225, 112},
		{hybridlimit.PerSecond(900), 3, 0.25, 135, 75},
		{hybridlimit.PerSecond(900), 4, 0.25, 96, 56},
		{hybridlimit.PerSecond(900), 3, 0.1, 162, 30},
		// For a longer burst the reserve is at most one second of the rate.
		{hybridlimit.PerMinute(6000), 3, 0.25, 1477, 500},
		{hybridlimit.PerHour(3600), 3, 0.25, 899, 300},
		{hybridlimit.TokenBucket(1, time.Hour, 10), 3, 0.25, 1, 1},
		{hybridlimit.PerSecond(10), 2, 0.25, 2, 1},
	} {
		parts, bad := divide(tc.limit, equal(tc.n), tc.escrow)
		if len(bad) > 0 {
			t.Errorf("%v: %v", tc.limit, bad)
			continue
		}
		if p := parts["0"]; p.limit.Burst != tc.burst || p.under != tc.under {
			t.Errorf("%v for %d: a burst of %d and %d under way, want %d and %d", tc.limit, tc.n, p.limit.Burst, p.under, tc.burst, tc.under)
		}
	}
}

// TestDivideLeavesTheReserve draws limits and shares. The parts never have more than the whole: the rate, and the burst
// with the units under way and the reserve. One unit more for each region would not fit.
func TestDivideLeavesTheReserve(t *testing.T) {
	rng := testenv.Rand(t)
	divided := 0
	for range 2000 {
		limit := hybridlimit.TokenBucket(1+rng.Int64N(100_000), []time.Duration{time.Second, time.Minute, 7 * time.Millisecond, time.Hour, 24 * time.Hour}[rng.IntN(5)], 0)
		if rng.IntN(2) == 0 {
			limit.Burst = 1 + rng.Int64N(1_000_000)
		}
		shares, escrow := drawShares(rng), rng.Float64()/2
		parts, bad := divide(limit, shares, escrow)
		if len(bad) > 0 {
			continue
		}
		divided++
		sum, reserve, least, rate := int64(0), int64(0), int64(1)<<62, new(big.Rat)
		for name, p := range parts {
			if err := p.limit.Validate(); err != nil || p.limit.Burst < 1 || p.under < 1 {
				t.Fatalf("%v: %+v, %v", limit, p, err)
			}
			beside := min(p.limit.Burst, refill(p.limit, time.Second))
			sum, reserve, least = sum+p.limit.Burst+p.under, reserve+beside, min(least, beside)
			part := big.NewRat(p.limit.Rate, int64(p.limit.Period))
			rate.Add(rate, part)
			want := new(big.Rat).Mul(big.NewRat(limit.Rate, int64(limit.Period)), big.NewRat(shares[name].num, shares[name].den))
			if lost := new(big.Rat).Sub(want, part); lost.Sign() < 0 || lost.Cmp(big.NewRat(1, int64(limit.Period))) >= 0 {
				t.Errorf("%v: share %v has the rate %v", limit, shares[name], p.limit)
			}
		}
		if whole := big.NewRat(limit.Rate, int64(limit.Period)); rate.Cmp(whole) > 0 {
			t.Errorf("%v: the rates are %v", limit, rate)
		}
		if all := sum + reserve - least; all > limit.BurstSize() {
			t.Errorf("%v for %v: %d units of %d", limit, shares, all, limit.BurstSize())
		}
	}
	if divided < 1000 {
		t.Errorf("only %d limits were divided", divided)
	}
}

// drawShares draws two to five shares of at most 1 together.
func drawShares(rng *rand.Rand) map[string]share {
	n := 2 + rng.Int64N(4)
	if rng.IntN(2) == 0 {
		return equal(n)
	}
	out, left := map[string]share{}, 1.0
	for i := range n {
		f := left * (0.1 + 0.8*rng.Float64())
		out[fmt.Sprint(i)], left = shareOf(f), left-f
	}
	return out
}
