package region

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// This file divides a limit among regions. With b the burst of a region, u the units that may be under way to it, and
// rate its part of the rate:
//
//	Σ b + Σ u + reserve ≤ Burst
//
// The reserve is the sum of min(b, rate·1 s) over all regions but the one in which that is least. Redis does not know of
// free leases, which live for at most min(1 s, b/rate): hybrid.Config.MaxLease is longestFree. Units that come from
// another region find room beside them, so that a region may hold more than b. The others refill what they gave: in that
// time, at most the reserve.
// docs/decisions/0074-units-move-between-regions.md has the proof.

// part is the part of a limit that a region has.
type part struct {
	limit hybridlimit.Limit
	under int64 // u, in units
}

// longestFree is the longest life of a free lease, in which a region may refill beside it.
const longestFree = time.Second

// millions is the denominator of a share of Config.Shares.
const millions = 1_000_000

// share is a fraction.
type share struct{ num, den int64 }

// shareOf returns a share rounded down to a millionth. The float nearest to a decimal fraction counts as that.
func shareOf(f float64) share { return share{int64(f*millions + 1e-3), millions} }

// divide divides a valid bucket limit among regions. It returns the violations of shares that leave a region less than
// a unit. escrow is the fraction of the burst that may be under way.
func divide(limit hybridlimit.Limit, shares map[string]share, escrow float64) (map[string]part, adapter.Violations) {
	var bad adapter.Violations
	names := slices.Sorted(maps.Keys(shares))
	n := int64(len(names))
	burst := limit.BurstSize()
	under := max(1, int64(escrow*float64(burst)/float64(n)))
	parts, free := map[string]part{}, map[string]int64{}
	for _, name := range names {
		l, err := scaled(limit, shares[name])
		if err != nil {
			bad.Add("Config.Shares", name, "leaves the region a rate that cannot be counted exactly: "+err.Error())
			continue
		}
		parts[name] = part{l, under}
		free[name] = refill(l, longestFree)
	}
	if len(bad) > 0 {
		return nil, bad
	}
	fits := func(whole int64) bool {
		left, least := burst-n*under, burst
		for _, name := range names {
			b, up := shares[name].of(whole)
			beside := min(up, free[name])
			left, least = left-b-beside, min(least, beside)
		}
		return left+least >= 0
	}
	low, high := int64(0), burst // fits(low), unless the escrow alone is too large
	for low < high {
		if mid := high - (high-low)/2; fits(mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	for _, name := range names {
		p := parts[name]
		if p.limit.Burst, _ = shares[name].of(low); p.limit.Burst < 1 {
			bad.Add("Config.Shares", name, fmt.Sprintf("leaves the region less than one unit of the burst (%d): use fewer regions or a larger burst", burst))
			continue
		}
		bad.AddLimit(p.limit)
		parts[name] = p
	}
	return parts, bad
}

// of returns the share of n units, rounded down and up.
func (s share) of(n int64) (down, up int64) {
	x, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(n), big.NewInt(s.num)), big.NewInt(s.den), new(big.Int))
	down = x.Int64()
	return down, down + int64(rest.Sign())
}

// refill returns the units that come back in a time, rounded up.
func refill(l hybridlimit.Limit, in time.Duration) int64 {
	x := new(big.Int).Mul(big.NewInt(l.Rate), big.NewInt(int64(in)))
	x.Add(x, big.NewInt(int64(l.Period)-1))
	return x.Quo(x, big.NewInt(int64(l.Period))).Int64()
}

// scaled returns a limit with a share of the rate and, rounded up, of the burst. The rate is exact if its sub-units can
// be counted. Otherwise it is less by up to a unit a period.
func scaled(l hybridlimit.Limit, s share) (hybridlimit.Limit, error) {
	_, l.Burst = s.of(l.BurstSize())
	whole := l
	num := new(big.Int).Mul(big.NewInt(l.Rate), big.NewInt(s.num))
	den := new(big.Int).Mul(big.NewInt(int64(l.Period/time.Microsecond)), big.NewInt(s.den))
	g := new(big.Int).GCD(nil, nil, num, den)
	if g.Sign() > 0 {
		num.Quo(num, g)
		den.Quo(den, g)
	}
	if num.IsInt64() && den.IsInt64() && den.Int64() <= int64(hybridlimit.Never/time.Microsecond) {
		l.Rate, l.Period = num.Int64(), time.Duration(den.Int64())*time.Microsecond
		if l.Validate() == nil {
			return l, nil
		}
	}
	l = whole
	l.Rate, _ = s.of(l.Rate)
	return l, l.Validate()
}
