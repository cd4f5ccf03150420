package ratesync

import (
	"context"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// flightPiece is the number of ops that one token of a flight stands for. A
// smaller batch takes a whole token, because it costs Redis a call.
const flightPiece = 16

// flight bounds the ops in flight to one Redis, over all lanes. An attempt that
// waits here has not begun: its wait does not count as Redis's time, and its
// batch is not built yet. Nil: no bound.
type flight struct {
	turn   chan struct{} // held while tokens are taken: otherwise two lanes could each hold a part of the last tokens and wait for ever
	tokens chan struct{} // holds the free tokens
}

// newFlight permits ops in flight at a time, and at least one full batch.
func newFlight(ops int) *flight {
	if ops <= 0 {
		return nil
	}
	n := pieces(max(ops, wire.MaxOps))
	f := &flight{turn: make(chan struct{}, 1), tokens: make(chan struct{}, n)}
	f.release(n)
	return f
}

// pieces returns the number of tokens that a batch takes.
func pieces(ops int) int { return max(1, (ops+flightPiece-1)/flightPiece) }

// acquire waits for n tokens, first come, first served. It returns false if ctx
// ended first.
func (f *flight) acquire(ctx context.Context, n int) bool {
	if f == nil {
		return true
	}
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-f.turn }()
	for have := range n {
		select {
		case <-f.tokens:
		case <-ctx.Done():
			f.release(have)
			return false
		}
	}
	return true
}

func (f *flight) release(n int) {
	if f == nil {
		return
	}
	for range n {
		f.tokens <- struct{}{} // never blocks: the channel has room for all tokens
	}
}
