package ratesync_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// refusal is an error reply of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// Is reports whether the caller of a batch wraps this error in target.
func (r refusal) Is(target error) bool {
	return target == wire.ErrRefused && strings.HasPrefix(string(r), "HLBATCH")
}

var _ redis.Error = refusal("")

// A batch that Redis will never apply is dropped and reported. The next batch has the next
// sequence. If another process used the lane's identity and the batch may have been
// applied before, the next batch has a new identity.
func TestRefused(t *testing.T) {
	type told struct {
		tag, ops int
		err      error
	}
	for _, tc := range []struct {
		name  string
		reply wire.Reply
		err   error
		lost  bool // the first answer is lost
		want  string
		seq   int64 // of the next batch
	}{
		{"unreadable", wire.Reply{}, refusal("HLBATCH unreadable op 1"), false, "HLBATCH unreadable op 1", 2},
		{"stale", wire.Reply{Stale: true}, nil, true, "ratesync: Redis holds a batch", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heard []told
				var w *world
				a, b := newItem(t, "a", 1), newItem(t, "b", 2)
				w = newWorld(t, calm, func(c *ratesync.Config) {
					c.OnRefused = func(tag, ops int, err error) {
						heard = append(heard, told{tag, ops, err})
						// No lock is held: with a lock these calls would block for ever.
						w.Stats()
						w.Enqueue(tag, b, now())
					}
				})
				a.onDrop = func() {
					a.owe(10)
					w.Enqueue(1, a, now())
				}
				w.redis.script = func(ctx context.Context, at attempt) (wire.Reply, error) {
					switch {
					case tc.lost && at.n == 0:
						return wire.Reply{}, errLost
					case at.n == 0 || tc.lost && at.n == 1:
						return tc.reply, tc.err
					}
					return applied(ctx, at)
				}
				w.Enqueue(1, a, now())
				time.Sleep(20 * time.Millisecond)
				all, want := w.redis.all(), ratesync.Stats{Messages: 2, Ops: 3, Refused: 1}
				if tc.lost {
					want = ratesync.Stats{Messages: 3, Ops: 4, Refused: 1, Failures: 1, Renamed: 1}
				}
				last := all[len(all)-1]
				if got := last.owed(); last.env.Seq != tc.seq || got["a"] != 10 || got["b"] != 2 || tc.lost == (last.env.Key == all[0].env.Key) {
					t.Errorf("the next batch is %v with %v", last, got)
				}
				if a.account() != [4]int64{0, 0, 10, 1} {
					t.Errorf("a: %v", a.account())
				}
				if len(heard) != 1 || heard[0].tag != 1 || heard[0].ops != 1 || !strings.HasPrefix(heard[0].err.Error(), tc.want) {
					t.Errorf("OnRefused got %v, want %q", heard, tc.want)
				}
				if got := w.Stats(); got != want {
					t.Errorf("Stats = %+v, want %+v", got, want)
				}
			})
		})
	}
}

func TestRefusedWithNobodyToTell(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n == 0 {
				return wire.Reply{}, refusal("HLBATCH unreadable op 1")
			}
			return applied(ctx, a)
		}
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		time.Sleep(rtt)
		if a.account() != [4]int64{0, 0, 0, 1} || w.Stats().Refused != 1 {
			t.Errorf("%v, %+v", a.account(), w.Stats())
		}
	})
}

// Any other error is a failure of Redis, not of the batch: the batch is sent again. A tag
// that always fails does not stop the others.
func TestOtherErrorsAreRetried(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		errs := []error{
			refusal("OOM command not allowed"), refusal("ERR user_script:12: bug"), refusal("LOADING Redis is loading"),
			wire.ErrReply, context.DeadlineExceeded, context.Canceled, errors.New("HLBATCH but not from Redis"),
		}
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if strings.Contains(a.env.Key, "{0}") {
				return wire.Reply{}, errs[a.n%len(errs)]
			}
			return applied(ctx, a)
		}
		poison := newItem(t, "poison", 1)
		w.Enqueue(0, poison, now())
		for range 100 {
			b := newItem(t, "b", 1)
			w.Enqueue(1, b, now())
			time.Sleep(10 * time.Millisecond)
			if b.account()[2] != 1 {
				t.Fatalf("b: %v", b.account())
			}
		}
		if poison.account() != [4]int64{0, 1, 0, 0} {
			t.Errorf("poison: %v", poison.account())
		}
	})
}

// A refusal is not a miss of the lane, but it is a failure in the breaker. A fleet whose
// batches are all refused is better off without Redis.
func TestRefusalsTrip(t *testing.T) {
	inBubble(t, trips, func(t *testing.T, w *world) {
		w.redis.empty = true
		w.redis.script = func(context.Context, attempt) (wire.Reply, error) { return wire.Reply{}, refusal("HLBATCH schema 2") }
		for range 3 {
			a := newItem(t, "a", 1)
			w.Enqueue(0, a, now())
			synctest.Wait()
		}
		if w.breaker.State() != breaker.Open {
			t.Errorf("the breaker is %v after three refusals", w.breaker.State())
		}
	})
}

// Gaps counts lost writes. Regression: it also counted two batches without a lost write.
// One was the first batch after an EnvelopeTTL of silence, because Redis had rightly
// forgotten the batch before. The other was the batch after a refused batch, because Redis
// had never stored the refused one.
func TestGaps(t *testing.T) {
	for _, tc := range []struct {
		name string
		idle time.Duration
		deny bool // the batch before the gap was refused
		want uint64
	}{
		{"lost", time.Second, false, 1},
		{"just remembered", ratesync.EnvelopeTTL - time.Second, false, 1},
		{"forgotten", ratesync.EnvelopeTTL, false, 0},
		{"refused", time.Second, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, calm, func(t *testing.T, w *world) {
				w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
					if a.n == 1 && tc.deny {
						return wire.Reply{}, refusal("HLBATCH")
					}
					r, err := applied(ctx, a)
					r.Gap = a.n == 2
					return r, err
				}
				for _, pause := range []time.Duration{time.Second, tc.idle, time.Second} {
					a := newItem(t, "a", 1)
					w.Enqueue(0, a, now())
					time.Sleep(pause)
				}
				w.wantAttempts(3)
				if got := w.Stats().Gaps; got != tc.want {
					t.Errorf("%d gaps, want %d", got, tc.want)
				}
			})
		})
	}
}
