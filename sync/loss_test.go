package ratesync_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// OnLoss is called once per loss, before the answer that shows the loss is settled, and
// without a lock. The first epoch is not a loss.
func TestOnLoss(t *testing.T) {
	const quiet = ratesync.EnvelopeTTL
	type told struct {
		answer, tag int
		sure        bool
	}
	for _, tc := range []struct {
		name   string
		epochs []int64 // of the answers
		gaps   []bool
		pause  time.Duration // before the last
		want   []told
	}{
		{"nothing", []int64{7, 7, 7}, []bool{false, false, false}, 0, nil},
		{"wiped", []int64{7, 8, 8}, []bool{false, true, false}, 0, []told{{1, 2, true}}},
		{"wiped twice", []int64{7, 8, 9}, []bool{false, true, true}, 0, []told{{1, 2, true}, {2, 2, true}}},
		{"an older epoch", []int64{7, 8, 7}, []bool{false, false, false}, 0, []told{{1, 2, true}, {2, 2, true}}},
		{"rolled back", []int64{7, 7, 7}, []bool{false, true, false}, 0, []told{{1, 2, true}}},
		{"epoch expired", []int64{7, 7, 8}, []bool{false, false, true}, quiet, []told{{2, 2, false}}},
		{"envelope expired", []int64{7, 7, 7}, []bool{false, false, true}, quiet, nil},
		{"just in time", []int64{7, 7, 8}, []bool{false, false, true}, quiet - time.Second, []told{{2, 2, true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heard []told
				var w *world
				settled := 0
				other := newItem(t, "other", 0)
				w = newWorld(t, calm, func(c *ratesync.Config) {
					c.OnLoss = func(tag int, sure bool) {
						heard = append(heard, told{settled, tag, sure})
						w.Stats() // no lock is held: with a lock these calls would block for ever
						w.Enqueue(tag, other, now().Add(time.Hour))
					}
				})
				w.redis.script = func(ctx context.Context, at attempt) (wire.Reply, error) {
					r, err := applied(ctx, at)
					r.Epoch, r.Gap = tc.epochs[at.n], tc.gaps[at.n]
					return r, err
				}
				for i := range tc.epochs {
					if i == len(tc.epochs)-1 {
						time.Sleep(tc.pause)
					}
					a := newItem(t, "a", 1)
					a.onSettle = func(ratesync.Answer) { settled++ }
					w.Enqueue(2, a, now())
					time.Sleep(10 * time.Millisecond)
				}
				if w.wantAttempts(len(tc.epochs)); !slices.Equal(heard, tc.want) {
					t.Errorf("OnLoss got %v, want %v", heard, tc.want)
				}
			})
		})
	}
}

// Each tag has its own epoch. OnLoss may be nil.
func TestEpochsAreOfTags(t *testing.T) {
	inBubble(t, calm, func(_ *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			r, err := applied(ctx, a)
			r.Epoch = 1 + int64(a.n)
			return r, err
		}
		for tag := range tags {
			a := newItem(w.t, "a", 1)
			w.Enqueue(tag, a, now())
			time.Sleep(rtt)
		}
		a := newItem(w.t, "a", 1)
		w.Enqueue(0, a, now())
		time.Sleep(rtt)
		w.wantAttempts(tags + 1)
	})
}
