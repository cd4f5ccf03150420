package reference_test

import (
	"math/big"

	"github.com/hybridlimit/hybridlimit"
)

// Bucket is the generic cell rate algorithm in its form with a theoretical arrival time. It is also the leaky queue:
// the next free place of the queue is the same number.
type Bucket struct {
	queue bool
	each  *big.Rat // µs per unit
	burst int64
	tat   *big.Rat // µs; units are missing until then
	last  int64    // time of the last change of tat
}

func newBucket(l hybridlimit.Limit) *Bucket {
	return &Bucket{
		queue: l.Algorithm == hybridlimit.AlgLeakyQueue, each: big.NewRat(micros(l), l.Rate),
		burst: l.BurstSize(), tat: new(big.Rat),
	}
}

// time returns the µs in which n units refill.
func (b *Bucket) time(n int64) *big.Rat { return times(whole(n), b.each) }

// Load implements Model.
func (b *Bucket) Load(now int64) Model {
	c := *b
	if back := b.last - now; back > slack {
		c.tat, c.last = minus(b.tat, whole(back)), now
	}
	c.last = max(c.last, now)
	return &c
}

// at returns the time that counts: it never goes back.
func (b *Bucket) at(now int64) *big.Rat { return whole(max(now, b.last)) }

func (b *Bucket) from(now int64) *big.Rat { return larger(b.tat, b.at(now)) }

// Free implements Model.
func (b *Bucket) Free(now int64) *big.Rat {
	missing := minus(b.from(now), b.at(now))
	return minus(whole(b.burst), missing.Quo(missing, b.each))
}

// Fits implements Model.
func (b *Bucket) Fits(now, n, patience int64) bool {
	debt := whole(0)
	if patience > 0 && !b.queue { // the length of a queue is fixed
		debt = b.time(b.burst)
	}
	end := plus(b.from(now), b.time(n))
	fits := n <= b.burst && end.Cmp(plus(plus(b.at(now), b.time(b.burst)), debt)) <= 0
	return fits && (patience == 0 || b.Delay(now, n) <= patience)
}

// Delay implements Model.
func (b *Bucket) Delay(now, n int64) int64 {
	ready := b.from(now) // a queue first serves the units that were there before
	if !b.queue {        // a bucket must have n units first
		ready = minus(plus(ready, b.time(n)), b.time(b.burst))
	}
	if ready.Cmp(b.at(now)) <= 0 {
		return 0
	}
	return ceil(minus(ready, whole(now)))
}

// Take implements Model.
func (b *Bucket) Take(now, n int64) { b.tat = plus(b.from(now), b.time(n)) }

// Owe implements Model.
func (b *Bucket) Owe(now, n, _ int64) bool {
	b.tat = smaller(plus(b.from(now), b.time(n)), plus(b.at(now), b.time(2*b.burst)))
	return true
}

// Refund implements Model.
func (b *Bucket) Refund(now, n, _ int64) { b.tat = minus(b.from(now), b.time(n)) }

// Reset implements Model.
func (b *Bucket) Reset(now int64) { b.tat, b.last = whole(now), now }
