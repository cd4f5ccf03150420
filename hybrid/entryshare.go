package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// share returns the size of the entry's share, and the share.
func (e *entry) share(p *account.Plan) account.Fallback {
	f := e.of.share(p, e.of.fleet.Size())
	f.Share = e
	return f
}

// Left implements fallback.Share.
func (e *entry) Left(s fallback.Size, now int64) float64 { return e.of.shares.Left(e.name, s, now) }

// Take implements fallback.Share.
func (e *entry) Take(s fallback.Size, n, now int64) bool {
	return e.of.shares.Take(e.name, s, n, now)
}

// Put implements fallback.Share.
func (e *entry) Put(s fallback.Size, n, now int64) { e.of.shares.Put(e.name, s, n, now) }

// Wait implements fallback.Share.
func (e *entry) Wait(s fallback.Size, n, now int64) int64 {
	return e.of.shares.Wait(e.name, s, n, now)
}

// Lower implements fallback.Share.
func (e *entry) Lower(s fallback.Size, level float64, now int64) {
	e.of.shares.Lower(e.name, s, level, now)
}

var _ fallback.Share = (*entry)(nil)
