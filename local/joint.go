package local

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
)

var (
	_ hybridlimit.Joint     = (*Limiter)(nil)
	_ hybridlimit.Describer = (*Limiter)(nil)
)

// Joins says whether AllowAll can ask the other limiter together with this one.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	_, ok := other.(*Limiter)
	return ok
}

// AllowJoint is AllowAll for those who have limiters as hybridlimit.Limiter.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	all := make([]Ask, len(asks))
	for i, a := range asks {
		if a.Limiter == nil || !l.Joins(a.Limiter) {
			return hybridlimit.Result{}, fmt.Errorf("local: AllowJoint: ask %d (%q): %w: the limiter does not join this one", i, a.Key, hybridlimit.ErrInvalid)
		}
		all[i] = Ask{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return AllowAll(ctx, all...)
}

// Policy tells what is enforced on key.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	s := &l.shards[0]
	s.mu.Lock()
	limit := s.base.limit
	s.mu.Unlock()
	if l.cfg.LimitFor != nil {
		if own := l.cfg.LimitFor(key); own != l.first {
			limit = own
		}
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: limit}
}
