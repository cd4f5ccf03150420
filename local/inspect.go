package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Peek says what Allow would say, and takes nothing: Granted is 0. It does not
// create the key, nor does it count as a use of it. It fails as Allow does.
func (l *Limiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	return l.peekAt(time.Now(), key)
}

func (l *Limiter) peekAt(now time.Time, key string) (hybridlimit.Result, error) {
	if err := hybridlimit.CheckRequest(key, 1, l.cfg.MaxKeyBytes); err != nil {
		return hybridlimit.Result{}, fmt.Errorf("local: %w", err)
	}
	s := l.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return hybridlimit.Result{}, errClosed
	}
	behind := s.tick(now.Sub(l.start))
	now = now.Add(behind)
	b, ok := s.keys.Peek(key)
	if !ok {
		b = &bucket{tokens: l.arith.newLimiter()}
	}
	res := l.describe(b.tokens, now, behind, 1)
	res.Allowed = res.RetryAfter == 0
	return res, nil
}

// Reset makes key as if it was never used. It fails as Allow does.
func (l *Limiter) Reset(_ context.Context, key string) error {
	if err := hybridlimit.CheckRequest(key, 1, l.cfg.MaxKeyBytes); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	s := l.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return errClosed
	}
	s.keys.Remove(key)
	return nil
}

// Len is how many keys are held, idle ones that no call has dropped yet
// included; 0 after Close. It locks one shard after the other, so under load it
// is no snapshot.
func (l *Limiter) Len() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		if s.keys != nil {
			n += s.keys.Len()
		}
		s.mu.Unlock()
	}
	return n
}

// Evicted is how many keys were pushed out by new ones before they were full
// again. Each got at most one burst too much. If it grows, MaxKeys is too
// small or somebody makes up keys.
func (l *Limiter) Evicted() uint64 {
	var n uint64
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += s.lost
		s.mu.Unlock()
	}
	return n
}

// Close frees all keys. Later decisions fail with hybridlimit.ErrClosed. It
// always returns nil, and closing again does nothing.
func (l *Limiter) Close() error {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.keys = nil
		s.mu.Unlock()
	}
	return nil
}
