package algo

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Never is the wait in µs for more units than the bucket holds. It is longer than any real wait (285 years), exact in a
// float64, and as a time.Duration it does not overflow.
const Never = exact

// exact is 2⁵³: up to it, a float64 represents every integer.
const exact = 1 << 53

// Bucket is the limit of a token bucket, a leaky bucket, or a leaky queue, in sub-units.
type Bucket struct {
	Queue  bool  // granted units wait until earlier ones are served: queue.go
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
	return Bucket{Queue: l.Algorithm == hybridlimit.AlgLeakyQueue, Unit: unit, Refill: l.Rate / a, Cap: l.BurstSize() * unit}
}

func (b Bucket) kind() Kind {
	if b.Queue {
		return KindQueue
	}
	return KindBucket
}

// Fill returns the level elapsed µs later. A negative elapsed refills nothing. A level above Cap, after the limit was
// lowered, is capped.
func (b Bucket) Fill(level, elapsed int64) int64 {
	if elapsed < 0 {
		elapsed = 0
	}
	// The product may leave the exact range, but is then far above the missing sub-units, so the comparison stays
	// right.
	add := float64(elapsed) * float64(b.Refill)
	if add >= float64(b.Cap-level) {
		return b.Cap
	}
	return level + int64(add)
}

// Units returns the whole units in a level, 0 in debt.
func (b Bucket) Units(level int64) int64 {
	if level < b.Unit {
		return 0
	}
	return level / b.Unit
}

// low returns the sub-units of a floor, at most half of the bucket: the ledger may hold the other half, and then the
// bucket refills no further.
func (b Bucket) low(floor int64) int64 {
	if most := b.Cap / 2; floor > most/b.Unit {
		return most
	}
	return floor * b.Unit
}

// Wait returns the µs until level reaches n units, rounded up: 0 if it has, Never if the bucket does not hold n.
func (b Bucket) Wait(level, n int64) int64 {
	if n > b.Cap/b.Unit {
		return Never
	}
	return b.wait(n*b.Unit - level)
}

// WaitFull returns the µs until the bucket is full.
func (b Bucket) WaitFull(level int64) int64 { return b.wait(b.Cap - level) }

func (b Bucket) wait(missing int64) int64 {
	if missing <= 0 {
		return 0
	}
	return (missing + b.Refill - 1) / b.Refill
}

// Rescale converts a level after a change of the limit: from counts of from sub-units per unit to this bucket's. The
// level in units stays, within this bucket's range. It never rounds up; it loses at most two sub-units, a few µs of
// refill.
func (b Bucket) Rescale(level, from int64) int64 { return b.clamp(b.scale(level, from)) }

// Convert is Rescale for the level of another limit's bucket. For a queue, the content of the queue stays in units, not
// the level.
func (b Bucket) Convert(level int64, from Bucket) int64 {
	return b.clamp(b.scale(level-from.kept(), from.Unit) + float64(b.kept()))
}

func (b Bucket) scale(level, from int64) float64 {
	scaled := float64(level)
	if from != b.Unit {
		whole := math.Floor(scaled / float64(from))
		// The conversions keep the compiler from fusing a product and a sum, which would round differently from Lua.
		product := float64((scaled - float64(whole*float64(from))) * float64(b.Unit))
		part := math.Floor(product / float64(from))
		if product >= exact {
			part = math.Max(part-1, 0) // two roundings may have gone up
		}
		scaled = float64(whole*float64(b.Unit)) + part
	}
	return scaled
}

func (b Bucket) clamp(level float64) int64 {
	return int64(math.Max(-float64(b.Cap), math.Min(level, float64(b.Cap))))
}
