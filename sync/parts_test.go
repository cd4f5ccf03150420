package ratesync_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// TestBadOpsCostNoOthers checks that of a refused batch only the ops that Redis refuses are dropped, and that the others
// are applied once, also if an answer is lost on the way.
func TestBadOpsCostNoOthers(t *testing.T) {
	for _, n := range []int{1, 2, 3, 17, wire.MaxOps} {
		for _, bad := range []map[int]bool{{0: true}, {n - 1: true}, {n / 2: true}, {0: true, n - 1: true}} {
			for lost := range 4 {
				synctest.Test(t, func(t *testing.T) {
					where := fmt.Sprintf("%d ops, bad %v, answer %d lost", n, bad, lost)
					w := newWorld(t, calm, func(*ratesync.Config) {})
					counted := map[string]int64{}
					var last int64 // the sequence number of the last applied batch
					w.redis.script = func(ctx context.Context, at attempt) (wire.Reply, error) {
						for _, op := range at.ops {
							if strings.HasPrefix(op.Key, "bad") {
								return wire.Reply{}, refusal("HLBATCH unreadable op")
							}
						}
						seen := at.env.Seq == last
						if !seen {
							last = at.env.Seq
							for key, units := range at.owed() {
								counted[key] += units
							}
						}
						reply, err := applied(ctx, at)
						reply.Seen = seen
						if at.n == lost {
							return wire.Reply{}, errLost
						}
						return reply, err
					}
					var items []*item
					for i := range n {
						name := fmt.Sprint("k", i)
						if bad[i] {
							name = fmt.Sprint("bad", i)
						}
						items = append(items, newItem(t, name, 2))
						w.Enqueue(0, items[i], now())
					}
					time.Sleep(20 * time.Second)
					synctest.Wait()
					for i, it := range items {
						switch name := it.name; {
						case bad[i] && it.account() != [4]int64{0, 0, 0, 2}:
							t.Errorf("%s: %s: %v, want it dropped", where, name, it.account())
						case !bad[i] && (it.account() != [4]int64{0, 0, 2, 0} || counted[name] != 2):
							t.Errorf("%s: %s: %v, counted %d", where, name, it.account(), counted[name])
						}
					}
					if s := w.Stats(); s.Refused != uint64(len(bad)) || s.Messages > 40 {
						t.Errorf("%s: %+v", where, s)
					}
				})
			}
		}
	}
}

// TestRefusedWhatever checks that a Redis that refuses everything gets few messages for a batch, and that Close drops the
// parts that are left.
func TestRefusedWhatever(t *testing.T) {
	for _, closes := range []bool{false, true} {
		inBubble(t, calm, func(t *testing.T, w *world) {
			w.redis.script = func(_ context.Context, at attempt) (wire.Reply, error) {
				if closes && at.n == 3 {
					go w.Close()
				}
				time.Sleep(time.Millisecond)
				return wire.Reply{}, refusal("HLBATCH unreadable limit")
			}
			var items []*item
			var all []ratesync.Item // in one batch
			for i := range wire.MaxOps {
				items = append(items, newItem(t, fmt.Sprint("k", i), 1))
				all = append(all, items[i])
			}
			w.EnqueueAll(0, all)
			time.Sleep(30 * time.Millisecond)
			if s := w.Stats(); s.Messages > 7 || !closes && s.Refused != wire.MaxOps {
				t.Errorf("%+v", s)
			}
			for _, it := range items {
				if it.account() != [4]int64{0, 0, 0, 1} {
					t.Errorf("%s: %v", it.name, it.account())
				}
			}
		})
	}
}
