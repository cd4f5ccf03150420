package hybrid_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// restoring is a fleet in a bubble whose Redis loses its state.
type restoring struct {
	*testing.T
	b   *redistest.Bubble
	rdb *redis.Client
	ls  []*hybrid.Limiter
	log capture
}

func newRestoring(t *testing.T, processes int, cfg hybrid.Config) *restoring {
	f := &restoring{T: t, b: redistest.NewBubble(t), log: newCapture()}
	f.rdb = f.b.Client(nil)
	cfg.Hub.Logger = slog.New(f.log)
	for range processes {
		f.ls = append(f.ls, newLimiter(t, f.b.Link().Client(nil), still(1000), cfg))
	}
	time.Sleep(3 * time.Second)
	return f
}

// drain makes a process take n units of each key, and gives it time to tell Redis.
func (f *restoring) drain(process int, n int64, keys ...string) {
	f.Helper()
	for _, k := range keys {
		if res := ask(f, f.ls[process], k, n); !res.Allowed {
			f.Fatalf("process %d is refused %d of %q: %+v", process, n, k, res)
		}
	}
	time.Sleep(200 * time.Millisecond)
}

// used returns the number of units missing from a key's bucket in Redis.
func (f *restoring) used(key string) int64 {
	s := inRedis(f, f.rdb, "api", key)
	if s.Unit == 0 {
		return 0
	}
	return (1000*s.Unit - s.Level + s.Unit - 1) / s.Unit // nothing is refilled meanwhile
}

func (f *restoring) usage(keys []string) map[string]int64 {
	all := map[string]int64{}
	for _, k := range keys {
		all[k] = f.used(k)
	}
	return all
}

// want checks that the same units are used in Redis as before.
func (f *restoring) want(before map[string]int64) {
	f.Helper()
	for k, n := range before {
		if got := f.used(k); got != n {
			f.Errorf("%q: %d units used in Redis, want %d", k, got, n)
		}
	}
}

func (f *restoring) resynced() int64 {
	return sum(f.ls, func(s hybrid.Stats) int64 { return s.Resynced })
}

// lines counts the log lines of losses.
func (f *restoring) lines() (n int) {
	for _, line := range f.log.all() {
		if strings.HasPrefix(line, lineLost) {
			n++
		}
	}
	return n
}

var restoringModes = []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred}

// TestFleetRestoresAWipedRedis checks that a wiped Redis is told the state of every key,
// although only one other key is used after the wipe. The same holds for the next wipes.
func TestFleetRestoresAWipedRedis(t *testing.T) {
	for _, mode := range restoringModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newRestoring(t, 3, hybrid.Config{Mode: mode, Hub: hybrid.HubConfig{Tags: 1}})
				keys := keysOf("k", 200)
				f.drain(0, 400, keys[:150]...)
				f.drain(1, 300, keys[50:]...) // has the latest view of 50 to 149
				rdbUsage := func() map[string]int64 { return f.usageOfTag0(keys) }
				before := rdbUsage()
				if before["k0"] < 400 || before["k100"] < 700 || before["k199"] < 300 {
					t.Fatalf("used before: %d, %d, %d", before["k0"], before["k100"], before["k199"])
				}
				for round := range 3 {
					f.b.Mini.FlushAll()
					for range 10 { // the third process, on a key of its own
						ask(t, f.ls[2], "other", 1)
						time.Sleep(100 * time.Millisecond)
					}
					time.Sleep(200 * time.Millisecond)
					for k, n := range rdbUsage() {
						if n != before[k] {
							t.Errorf("round %d: %q: %d units used in Redis, want %d", round, k, n, before[k])
						}
					}
				}
				if got := f.resynced(); got < 3*300 || got > 3*(300+5) {
					t.Errorf("%d keys re-synced, want 300 each time, and a few that find the loss", got)
				}
				if n := f.lines(); n < 3 || n > 9 {
					t.Errorf("%d lines in the log:\n%s", n, strings.Join(f.log.all(), "\n"))
				}
				for _, l := range f.ls {
					balance(t, l.Stats())
				}
			})
		})
	}
}

// usageOfTag0 is usage for hubs with one tag.
func (f *restoring) usageOfTag0(keys []string) map[string]int64 {
	names, all := lua.Names{Prefix: "hl", Tags: 1}, map[string]int64{}
	for _, k := range keys {
		text, _ := f.rdb.Get(context.Background(), names.State(0, "api", k)).Result()
		if s, ok := wire.DecodeState(text); ok {
			all[k] = (1000*s.Unit - s.Level + s.Unit - 1) / s.Unit
		} else {
			all[k] = 0
		}
	}
	return all
}

// TestIdleFleetRestoresAWipedRedis checks that a fleet without calls after the wipe restores
// Redis too, because its heartbeats notice the loss.
func TestIdleFleetRestoresAWipedRedis(t *testing.T) {
	for _, mode := range restoringModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newRestoring(t, 3, hybrid.Config{Mode: mode})
				keys := keysOf("k", 200)
				f.drain(0, 400, keys[:150]...)
				f.drain(1, 300, keys[50:]...)
				time.Sleep(time.Minute)
				before := f.usage(keys)
				for range 2 {
					f.b.Mini.FlushAll()
					time.Sleep(1500 * time.Millisecond)
					f.want(before)
				}
				for _, l := range f.ls {
					balance(t, l.Stats())
				}
			})
		})
	}
}

// TestAskingFleetRestoresAWipedRedis checks that a fleet restores Redis whose messages are lone asks, which have no
// envelope and so show no loss: the heartbeats do. Other keys are told in time all the same.
func TestAskingFleetRestoresAWipedRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newRestoring(t, 2, hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: time.Second})
		keys := keysOf("k", 200)
		f.drain(0, 400, keys...)
		f.drain(1, 300, keys...)
		calls := 0
		asking := func(d time.Duration) {
			for range d / (50 * time.Millisecond) {
				calls++
				for _, l := range f.ls {
					if res := ask(t, l, fmt.Sprint("new", calls), 1); !res.Allowed || res.Source != hybridlimit.SourceRedis {
						t.Errorf("%+v", res)
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		asking(20 * time.Second)
		before := f.usage(keys)
		for range 2 {
			f.b.Mini.FlushAll()
			asking(1500 * time.Millisecond)
			f.want(before)
			asking(10 * time.Second)
		}
		for _, l := range f.ls {
			balance(t, l.Stats())
		}
	})
}

// TestFleetRestoresARolledBackRedis brings Redis back with an older snapshot, in which each
// key has its created-at time.
func TestFleetRestoresARolledBackRedis(t *testing.T) {
	for _, idle := range []bool{false, true} {
		t.Run(fmt.Sprint("idle ", idle), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newRestoring(t, 3, hybrid.Config{Mode: hybrid.ModeStrict})
				keys := keysOf("k", 100)
				f.drain(0, 100, keys...)
				f.drain(1, 100, keys...)
				snapshot := map[string]string{}
				for _, k := range f.b.Mini.Keys() {
					if text, err := f.b.Mini.Get(k); err == nil {
						snapshot[k] = text
					}
				}
				f.drain(0, 300, keys[:60]...)
				f.drain(1, 200, keys[30:]...)
				before := f.usage(keys)
				for k, text := range snapshot {
					ttl := f.b.Mini.TTL(k)
					f.b.Mini.Set(k, text)
					f.b.Mini.SetTTL(k, ttl)
				}
				// The heartbeats in the snapshot are old too, and would have expired.
				f.b.Mini.Del(heartbeatsOf(still(1000), "api"))
				for i := range 100 {
					if !idle {
						ask(t, f.ls[i%3], fmt.Sprint("other", i), 1)
					}
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(500 * time.Millisecond)
				f.want(before)
				for _, l := range f.ls {
					balance(t, l.Stats())
				}
			})
		})
	}
}

// TestNoLossNoHarm checks that events without a loss of states change no state: scripts are
// flushed, or epochs or heartbeats expire or are evicted.
func TestNoLossNoHarm(t *testing.T) {
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	for _, tc := range []struct {
		name     string
		do       func(f *restoring)
		resynced bool
	}{
		{"scripts flushed", func(f *restoring) { f.rdb.ScriptFlush(context.Background()) }, false},
		{"silence", func(*restoring) { time.Sleep(20 * time.Minute) }, true}, // the epochs expired
		{"epochs lost", func(f *restoring) {
			for tag := range names.Tags {
				f.b.Mini.Del(names.Epoch(tag))
			}
		}, true},
		{"heartbeats lost", func(f *restoring) { f.b.Mini.Del(heartbeatsOf(still(1000), "api")) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newRestoring(t, 2, hybrid.Config{Mode: hybrid.ModeDeferred})
				keys := keysOf("k", 50)
				f.drain(0, 200, keys...)
				f.drain(1, 200, keys...)
				tc.do(f)
				before := f.usage(keys)
				if tc.name != "silence" {
					for _, k := range keys {
						if before[k] != 400 {
							t.Fatalf("%q: %d used", k, before[k])
						}
					}
				}
				time.Sleep(1500 * time.Millisecond)
				for i := range f.ls {
					f.drain(i, 1, keys...)
				}
				time.Sleep(1500 * time.Millisecond)
				for k := range before {
					before[k] += 2
				}
				f.want(before)
				if got := f.resynced(); (got > 0) != tc.resynced {
					t.Errorf("%d keys re-synced", got)
				}
				if n := f.lines(); (n > 0) != (tc.name == "epochs lost") {
					t.Errorf("logged:\n%s", strings.Join(f.log.all(), "\n"))
				}
			})
		})
	}
}

// TestFullKeysAreNotResynced checks that a bucket is not re-synced if it was full again
// before Redis can have lost it.
func TestFullKeysAreNotResynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(100, time.Second, 100), hybrid.Config{})
		time.Sleep(3 * time.Second)
		for _, k := range keysOf("k", 50) {
			ask(t, l, k, 20)
		}
		time.Sleep(4 * time.Second)
		b.Mini.FlushAll()
		for range 20 {
			ask(t, l, "k0", 1)
			time.Sleep(100 * time.Millisecond)
		}
		if got := l.Stats().Resynced; got > 2 {
			t.Errorf("%d keys re-synced", got)
		}
	})
}

// TestResyncMeetsTheEnd checks that a re-sync ends whatever happens meanwhile, and that Close
// waits for it.
func TestResyncMeetsTheEnd(t *testing.T) {
	for name, do := range map[string]func(*restoring){
		"Close":    func(f *restoring) { f.ls[0].Close() },
		"Shutdown": func(f *restoring) { shutdown(f, f.ls[0]) },
		"outage": func(f *restoring) {
			f.b.Kill()
			time.Sleep(5 * time.Second)
			f.b.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newRestoring(t, 2, hybrid.Config{Mode: hybrid.ModeStrict})
				keys := keysOf("k", 400) // in as many messages as there are tags
				for _, k := range keys {
					ask(t, f.ls[0], k, 500)
				}
				var before map[string]int64
				if name == "outage" {
					before = f.usage(keys)
				}
				f.b.Mini.FlushAll()
				for i := range 100 {
					ask(t, f.ls[0], fmt.Sprint("other", i), 1)
				}
				time.Sleep(60 * time.Millisecond)
				do(f)
				if name == "outage" {
					time.Sleep(10 * time.Second)
					f.want(before)
				}
			})
		})
	}
}
