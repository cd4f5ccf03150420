package ratesync_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// TestAnotherUsesTheIdentity checks that a lane takes a new identity when another process
// uses its own: that process wrote the envelope, or is a copy of this process. A batch
// with an unanswered attempt is not sent under the new identity. A batch whose attempts
// were all answered is sent again unchanged, and no unit is lost. The other tags keep
// their identity.
func TestAnotherUsesTheIdentity(t *testing.T) {
	for name, reply := range map[string]wire.Reply{
		"a later batch": {Stale: true},
		"the same sequence, which was never sent before": {Seen: true, Answers: make([]wire.Answer, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var renamed []int
				w := newWorld(t, calm, func(c *ratesync.Config) {
					c.OnRenamed = func(tag int) { renamed = append(renamed, tag) }
					c.OnRefused = func(int, int, error) { t.Error("a batch was dropped") }
				})
				poisoned := ""
				w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
					if a.env.Key == poisoned {
						return reply, nil
					}
					return applied(ctx, a)
				}
				send := func(tag int) *item {
					i := newItem(t, "i", 3)
					w.Enqueue(tag, i, now())
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
					return i
				}
				send(1)
				send(2)
				poisoned = w.redis.all()[0].env.Key
				i := send(1)
				other := send(2)
				all := w.wantAttempts(5)
				if again := all[3]; again.env.Key == poisoned || !strings.HasPrefix(again.env.Key, poisoned+".") || again.env.Seq != 1 || again.owed()["i"] != 3 {
					t.Errorf("the batch was sent again as %v", again)
				}
				if all[4].env != (wire.Envelope{Key: all[1].env.Key, Epoch: all[1].env.Epoch, Seq: 2, TTL: ratesync.EnvelopeTTL}) {
					t.Errorf("the other tag's next batch is %v", all[4])
				}
				if i.account() != [4]int64{0, 0, 3, 0} || other.account() != [4]int64{0, 0, 3, 0} || len(renamed) != 1 || renamed[0] != 1 {
					t.Errorf("%v, %v, renamed %v", i.account(), other.account(), renamed)
				}
				// The same again: each new identity differs from the last.
				poisoned = all[3].env.Key
				if i := send(1); i.account() != [4]int64{0, 0, 3, 0} || w.Stats().Renamed != 2 || w.Stats().Refused != 0 || w.Refusing(1) {
					t.Errorf("%v, %+v", i.account(), w.Stats())
				}
				if last := w.wantAttempts(7)[6]; last.env.Key == poisoned || last.env.Seq != 1 {
					t.Errorf("the batch was sent again as %v", last)
				}
			})
		})
	}
}

// A tag whose batches are refused again and again counts as refusing. The other tags do
// not. Its lane then sends empty batches at a steady pace until Redis applies one.
func TestRefusalsInARow(t *testing.T) {
	for name, refuse := range map[string]func() (wire.Reply, error){
		"stale":      func() (wire.Reply, error) { return wire.Reply{Stale: true}, nil },
		"unreadable": func() (wire.Reply, error) { return wire.Reply{}, refusal("HLBATCH schema 2") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []bool
				w := newWorld(t, calm, func(c *ratesync.Config) {
					c.OnRefusing = func(tag int, refusing bool, err error) {
						if told = append(told, refusing); tag != 1 || refusing != (err != nil) {
							t.Errorf("tag %d: %v, %v", tag, refusing, err)
						}
					}
				})
				w.redis.empty = true
				var well atomic.Bool
				w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
					if !well.Load() && strings.Contains(a.env.Key, "{1}") {
						return refuse()
					}
					return applied(ctx, a)
				}
				var lost int64
				for range 3 {
					i := newItem(t, "i", 1)
					w.Enqueue(1, i, now())
					synctest.Wait()
					lost += i.account()[3]
				}
				if !w.Refusing(1) || w.Refusing(2) {
					t.Fatalf("tag 1: %v, tag 2: %v", w.Refusing(1), w.Refusing(2))
				}
				later := newItem(t, "later", 1)
				w.Enqueue(1, later, now())
				other := newItem(t, "other", 1)
				w.Enqueue(2, other, now())
				sent := len(w.redis.all())
				time.Sleep(10 * time.Second)
				if n := len(w.redis.all()) - sent; n < 40 || n > 200 {
					t.Errorf("%d attempts in ten seconds, want 40 to 200", n)
				}
				if later.account() != [4]int64{1, 0, 0, 0} || other.account()[2] != 1 {
					t.Errorf("later %v, other %v", later.account(), other.account())
				}
				if want := map[string]int64{"stale": 0, "unreadable": 3}[name]; lost != want || w.Stats().Refused != uint64(want) {
					t.Errorf("%d units were dropped, want %d; %+v", lost, want, w.Stats())
				}
				well.Store(true)
				time.Sleep(time.Second)
				synctest.Wait()
				if w.Refusing(1) || later.account() != [4]int64{0, 0, 1, 0} || len(told) != 2 || !told[0] || told[1] {
					t.Errorf("refusing %v, %v, told %v", w.Refusing(1), later.account(), told)
				}
				if err := w.Idle(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
