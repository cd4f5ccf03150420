package algo

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Bucket is a token bucket's limit in sub-units.
type Bucket struct {
	Unit   int64 // sub-units per unit
	Refill int64 // sub-units per µs
	Cap    int64 // sub-units of a full bucket
}

// BucketOf converts a valid limit.
func BucketOf(l hybridlimit.Limit) Bucket {
	period := int64(l.Period / time.Microsecond)
	a, b := l.Rate, period
	for b != 0 {
		a, b = b, a%b
	}
	unit := period / a
	return Bucket{Unit: unit, Refill: l.Rate / a, Cap: l.BurstSize() * unit}
}

// Fill is the level elapsed µs later. A negative elapsed refills nothing; a
// level above Cap (the limit was lowered) is capped.
func (b Bucket) Fill(level, elapsed int64) int64 {
	if elapsed < 0 {
		elapsed = 0
	}
	// The product may leave the exact range, but only where it is far above
	// what is missing, so that the comparison stays right.
	add := float64(elapsed) * float64(b.Refill)
	if add >= float64(b.Cap-level) {
		return b.Cap
	}
	return level + int64(add)
}

// Units is the whole units in a level, 0 in debt.
func (b Bucket) Units(level int64) int64 {
	if level < b.Unit {
		return 0
	}
	return level / b.Unit
}

// Wait is how many µs until level reaches n units, rounded up; 0 when it has.
func (b Bucket) Wait(level, n int64) int64 {
	missing := n*b.Unit - level
	if missing <= 0 {
		return 0
	}
	return (missing + b.Refill - 1) / b.Refill
}

// WaitFull is how many µs until the bucket is full.
func (b Bucket) WaitFull(level int64) int64 {
	if level >= b.Cap {
		return 0
	}
	return (b.Cap - level + b.Refill - 1) / b.Refill
}

// Rescale converts a level counted in units of from sub-units to this
// bucket's, and never up. The limit changed; the level is in units and stays.
func (b Bucket) Rescale(level, from int64) int64 {
	if from == b.Unit {
		return level
	}
	whole := math.Floor(float64(level) / float64(from))
	part := float64(level) - whole*float64(from)
	return int64(whole*float64(b.Unit) + math.Floor(part*float64(b.Unit)/float64(from)))
}
