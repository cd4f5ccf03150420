package ratesync

import (
	"context"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// flightPiece is the ops that one token of a flight stands for. A smaller batch
// takes a whole one: it costs Redis a call.
const flightPiece = 16

// flight bounds what is on its way to one Redis at a time, over all lanes. What
// waits here has not begun: its time does not count as Redis's, and its batch is
// not made up yet. Nil: no bound.
type flight struct {
	turn   chan struct{} // held while taking tokens: of two that need several, none may have half of the last
	tokens chan struct{} // as many as are free
}

// newFlight allows so many ops at a time, and one full batch at least.
func newFlight(ops int) *flight {
	if ops <= 0 {
		return nil
	}
	n := pieces(max(ops, wire.MaxOps))
	f := &flight{turn: make(chan struct{}, 1), tokens: make(chan struct{}, n)}
	f.release(n)
	return f
}

// pieces is how many tokens a batch takes.
func pieces(ops int) int { return max(1, (ops+flightPiece-1)/flightPiece) }

// acquire waits for n tokens, those who came first having theirs first, and
// reports false when ctx ended before.
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
		f.tokens <- struct{}{} // never waits: as many as were taken
	}
}
