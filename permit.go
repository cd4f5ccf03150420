package hybridlimit

import (
	"context"
	"sync"
	"sync/atomic"
)

// Permit is the place of one running call, or of n. Release it when the call ends, also after a panic: defer
// permit.Release(). A Permit may be copied: all copies are one permit. The zero Permit holds no place.
type Permit struct {
	slot *permitSlot
	turn uint64 // of the slot, while the permit is held
}

// permitSlot is the shared part of the copies of one permit. The pool reuses it
// for other permits, so a copy that is older than the turn has no effect.
type permitSlot struct {
	turn   atomic.Uint64 // the number of releases
	holder PermitHolder
	n      int64
}

var permitSlots = sync.Pool{New: func() any { return new(permitSlot) }}

// PermitHolder takes places back. It is for implementations of Acquirer and Shedder.
type PermitHolder interface {
	// ReleasePermits takes n places back. It is called once for each permit, in the goroutine that releases it.
	ReleasePermits(n int64)
}

// NewPermit returns a permit for n places of h. It is for implementations. It does
// not allocate while permits of calls that have ended can be reused.
func NewPermit(h PermitHolder, n int64) Permit {
	slot := permitSlots.Get().(*permitSlot)
	slot.holder, slot.n = h, n
	return Permit{slot, slot.turn.Load()}
}

// Release gives the places back. Only the first Release of a permit, or of any copy of it, has an effect. Release is
// safe for concurrent use, works after the limiter is closed, and does not allocate.
func (p Permit) Release() {
	slot := p.slot
	if slot == nil || !slot.turn.CompareAndSwap(p.turn, p.turn+1) {
		return
	}
	h, n := slot.holder, slot.n
	slot.holder = nil
	permitSlots.Put(slot)
	h.ReleasePermits(n)
}

// Acquirer is a Limiter of calls in flight: a limit of AlgConcurrent. Allow and AllowN return ErrUnsupported, because
// their Result has no permit to release. AllowAll and the adapters (httplimit, grpclimit) acquire permits themselves.
// Implementations are safe for concurrent use.
type Acquirer interface {
	Limiter
	// Acquire is AcquireN with one permit.
	Acquire(ctx context.Context, key string) (Permit, Result, error)
	// AcquireN acquires n permits of key, all or none, for one call. It may wait for them. The Permit is zero unless
	// Result.Allowed: release it when the call ends. Result.Limit is the number of permits, and Remaining the number of
	// free ones, as far as it is known. RetryAfter is a hint, or Never for an n above the limit.
	//
	// The errors are ErrEmptyKey, ErrKeyTooLong, ErrCost, ErrClosed, the error of
	// ctx, and ErrTooManyKeys. Nothing is held then.
	AcquireN(ctx context.Context, key string, n int64) (Permit, Result, error)
}

// Shedder decides whether this process runs one more call. It protects the process from an overload that no rate shows,
// such as a slow dependency. Package shed has one, in a module of its own. Adapters ask it last, after the limits.
// Implementations are safe for concurrent use.
type Shedder interface {
	// Acquire asks for a place for one call of a class. It may wait for one. The Permit is zero unless the call is
	// allowed. A denial is a Result with Source SourceShed. The errors are ErrClosed and the error of ctx; the Result
	// is then zero.
	Acquire(ctx context.Context, class string) (Permit, Result, error)
}
