package reference_test

import (
	"math/big"

	"github.com/hybridlimit/hybridlimit"
)

// slack is the largest step back of the clock, in µs, during which the model's time only stands still. After a larger
// step the model moves with the clock.
const slack = 1_000_000

// Model is one key under one limit. Times are µs. Only the times of Load may go back.
type Model interface {
	// Load returns a copy as of now.
	Load(now int64) Model
	// Free returns the units left. It is negative in debt.
	Free(now int64) *big.Rat
	// Fits reports whether n units would be granted, if the caller may be delayed by patience µs.
	Fits(now, n, patience int64) bool
	// Delay returns the µs until n units that fit may be used.
	Delay(now, n int64) int64
	// Take admits n units that fit.
	Take(now, n int64)
	// Owe debits n units that were admitted in the given window (0: the window of now), down to a burst of debt. It
	// returns false if the window is too old.
	Owe(now, n, window int64) bool
	// Refund gives back n units that were debited in the given window; 0: not known.
	Refund(now, n, window int64)
	// Reset forgets all use.
	Reset(now int64)
}

// New returns the model of a limit.
func New(l hybridlimit.Limit) Model {
	switch l.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow:
		return newWindows(l)
	case hybridlimit.AlgSlidingLog:
		return &Log{rate: l.Rate, period: micros(l)}
	default:
		return newBucket(l)
	}
}

func micros(l hybridlimit.Limit) int64 { return l.Period.Microseconds() }

func whole(n int64) *big.Rat { return big.NewRat(n, 1) }

func plus(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

func larger(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func smaller(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// floor returns the largest integer not above r.
func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

// ceil returns the smallest integer not below r.
func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
