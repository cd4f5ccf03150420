package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Peek is PeekN with a cost of 1.
func (l *Limiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	return l.lookAt(l.now(), key, 1)
}

// PeekN returns the answer that AllowN would give, and takes nothing: Granted is 0. It neither creates the key nor
// counts as a use of it. If the last call of the key came with a limit (AllowLimit), PeekN uses that limit. It fails as
// AllowN does.
func (l *Limiter) PeekN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.lookAt(l.now(), key, n)
}

func (l *Limiter) lookAt(now time.Duration, key string, n int64) (hybridlimit.Result, error) {
	at := place{peeks: true}
	if err := l.lock(&at, now, key, n, true); err != nil {
		return hybridlimit.Result{}, err
	}
	defer at.mu.Unlock()
	p := at.limit(nil)
	if static(p.limit.Algorithm) {
		res := l.static(p, n)
		res.Granted = 0
		return res, nil
	}
	t, behind := at.tick(now)
	e := at.glance(p)
	floor := l.floor(e.plan)
	if n > e.plan.burst-floor {
		return l.never(e.look(t, 0), e.plan, behind), nil
	}
	seen := e.look(t, n+floor)
	res := l.result(seen, e.plan, behind)
	res.Allowed = seen.retry == 0
	if res.Allowed && e.plan.limit.Algorithm == hybridlimit.AlgLeakyQueue {
		res.Delay = res.ResetAfter // the whole queue is served first
	}
	return res, nil
}

// History returns the admissions of key that a log still counts, the oldest first, with their request ids
// (hybridlimit.WithRequestID). Times are exact to the nanosecond, in Unix time by the wall clock at the limiter's
// start. Units given back and denied calls are not in it. History does not count as a use of the key. It blocks the
// key's shard while it copies the entries. For other algorithms, which keep no log, the error is
// hybridlimit.ErrUnsupported. Otherwise History fails as Allow does.
func (l *Limiter) History(_ context.Context, key string) ([]hybridlimit.Admission, error) {
	return l.history(l.now(), key)
}

func (l *Limiter) history(now time.Duration, key string) ([]hybridlimit.Admission, error) {
	if err := l.checkKey(key); err != nil {
		return nil, err
	}
	at := l.place(key)
	at.mu.Lock()
	if at.closed {
		at.mu.Unlock()
		return nil, errClosed
	}
	var log []logged
	if e, ok := at.keys.Peek(key); ok {
		if j, ok := e.state.(*journal); ok {
			t, _ := at.tick(now)
			log = j.history(t)
		}
	}
	at.mu.Unlock()
	if of := hybridlimit.Algorithm(l.counting.Load()); of != hybridlimit.AlgSlidingLog {
		return nil, fmt.Errorf("local: History(%q): %w: %v keeps no log", key, hybridlimit.ErrUnsupported, of)
	}
	out := make([]hybridlimit.Admission, len(log))
	for i, a := range log {
		out[i] = hybridlimit.Admission{At: l.start.Add(a.at).Round(0), Units: a.units, RequestID: a.request}
	}
	return out, nil
}

// request returns the request id of a call, or "" if the limiter keeps no log.
func (l *Limiter) request(ctx context.Context) string {
	if hybridlimit.Algorithm(l.counting.Load()) != hybridlimit.AlgSlidingLog {
		return ""
	}
	return hybridlimit.RequestID(ctx)
}

// Reset gives key the state of an unused one. A later Cancel gives back nothing of an earlier reservation. It fails as
// Allow does.
func (l *Limiter) Reset(_ context.Context, key string) error {
	if err := l.checkKey(key); err != nil {
		return err
	}
	at := l.place(key)
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.closed {
		return errClosed
	}
	at.keys.Remove(key)
	return nil
}

// Len returns the number of keys held, including idle keys that no call has dropped yet. After Close it is 0. Len locks
// one shard after the other, so its result is no snapshot under load.
func (l *Limiter) Len() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += s.keys.Len()
		s.mu.Unlock()
	}
	return n
}

// Evicted returns the number of keys that were evicted before they were full again. Each such key got at most one burst
// too much, and lost its debt. If the number grows, MaxKeys is too small or a caller invents keys.
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

// Close frees all keys and ends every Wait. Later decisions fail with hybridlimit.ErrClosed. It always returns nil, and
// closing again does nothing.
func (l *Limiter) Close() error {
	l.closing.Do(func() { close(l.closed) })
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.keys, s.closed = newKeys(1), true
		s.mu.Unlock()
	}
	return nil
}

// Shutdown is Close. It exists so that a program can change the package of its limiter without other changes: nothing
// has to be sent, so ctx has no effect.
func (l *Limiter) Shutdown(context.Context) error { return l.Close() }

// Ready returns nil, or hybridlimit.ErrClosed after Close. It exists for the same reason as Shutdown: a limiter of one
// process is ready at once.
func (l *Limiter) Ready(context.Context) error {
	select {
	case <-l.closed:
		return hybridlimit.ErrClosed
	default:
		return nil
	}
}

// checkKey returns an error for an invalid key.
func (l *Limiter) checkKey(key string) error {
	if err := hybridlimit.CheckRequest(key, 1, l.cfg.MaxKeyBytes); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	return nil
}
