package hybrid_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// bill is the records of a service: the units that each key has used.
type bill struct {
	mu    sync.Mutex
	used  map[string]int64
	asked map[string]int
	fails int           // the next questions fail
	takes time.Duration // a question
}

func newBill() *bill { return &bill{used: map[string]int64{}, asked: map[string]int{}} }

func (b *bill) add(key string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[key] += n
}

func (b *bill) questions(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[key]
}

// restore is for Config.Restore.
func (b *bill) restore(ctx context.Context, key string, begin time.Time) (int64, time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[key]++
	switch {
	case !begin.Equal(midnight().AddDate(0, 0, -1)) && !begin.Equal(midnight()):
		return 0, time.Time{}, errors.New("no begin of a day: " + begin.String())
	case b.fails > 0:
		b.fails--
		return 0, time.Time{}, errors.New("no records")
	}
	used, at := b.used[key], time.Now()
	b.mu.Unlock()
	select {
	case <-time.After(b.takes):
	case <-ctx.Done():
	}
	b.mu.Lock()
	return used, at, ctx.Err()
}

// spend takes units of a key one by one, up to most, and returns those that it got.
func (b *bill) spend(t *testing.T, l *hybrid.Limiter, key string, most int64) (got int64) {
	for got < most && ask(t, l, key, 1).Allowed {
		b.add(key, 1)
		got++
	}
	return got
}

// restartAll closes limiters, wipes their Redis, and makes as many new ones.
func restartAll(t *testing.T, b *redistest.Bubble, ls []*hybrid.Limiter, limit hybridlimit.Limit, cfg hybrid.Config) []*hybrid.Limiter {
	shutdown(t, ls...)
	b.Mini.FlushAll()
	ls, _ = startDay(t, b, len(ls), limit, cfg)
	return ls
}

// TestRestore wipes Redis while no process runs. The records of the caller restore the used units, in every mode. Each
// process asks once, and a process that comes later counts nothing twice.
func TestRestore(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate = 1000
				b, records := redistest.NewBubble(t), newBill()
				ahead(b, 0)
				cfg := hybrid.Config{Mode: mode, Restore: records.restore}
				ls, _ := startDay(t, b, 2, azoresDay(rate), cfg)
				records.spend(t, ls[0], "used up", 2*rate)
				records.spend(t, ls[0], "k", 600)
				time.Sleep(10 * time.Second)
				if records.questions("k") != 1 {
					t.Errorf("%d questions about a new key of a new Redis, want 1", records.questions("k"))
				}
				ls = restartAll(t, b, ls, azoresDay(rate), cfg)
				for _, l := range ls {
					records.spend(t, l, "k", 50)
					records.spend(t, l, "used up", 1)
				}
				time.Sleep(5 * time.Second) // the state is not new any more
				more, _ := startDay(t, b, 1, azoresDay(rate), cfg)
				late := more[0]
				for range 20 {
					for _, l := range append(ls, late) {
						records.spend(t, l, "k", 3)
						records.spend(t, l, "used up", 10)
					}
					time.Sleep(time.Second)
				}
				lost := int64(4) // used before the answer
				if got := records.used["used up"]; got > rate+lost+2*ls[0].Stats().Credit {
					t.Errorf("%d units of %d: units were given back", got, rate)
				}
				left := ask(t, late, "k", 1).Remaining
				if want := rate - records.used["k"] - 1; left > want || left < want-130 { // 102, and leases in hand
					t.Errorf("%d left, want %d: at most the units before the answers count twice", left, want)
				}
				if got := records.questions("k"); got != 4 {
					t.Errorf("%d questions by 1 + 3 processes", got)
				}
				if s := ls[0].Stats(); s.Restored != 2 || s.RestoreFailures != 0 {
					t.Errorf("restored %d keys with %d failures, want 2 and 0", s.Restored, s.RestoreFailures)
				}
				shutdown(t, append(ls, late)...)
			})
		})
	}
}

// TestRestoreAsksAfterALossOnly uses keys for the first time, over a border of a period and after an idle hour.
func TestRestoreAsksAfterALossOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, records := redistest.NewBubble(t), newBill()
		ahead(b, 0)
		cfg := hybrid.Config{Restore: records.restore}
		ls, _ := startDay(t, b, 2, azoresDay(1000), cfg)
		ask(t, ls[0], "old", 1)
		shutdown(t, ls...)
		time.Sleep(time.Until(midnight().Add(3 * time.Hour)))
		ls, _ = startDay(t, b, 2, azoresDay(1000), cfg)
		for _, l := range ls {
			ask(t, l, "old", 1)
			ask(t, l, "new", 1)
		}
		time.Sleep(10 * time.Second)
		if got := records.questions("old") + records.questions("new"); got != 1 {
			t.Errorf("%d questions, want the one of the first day", got)
		}
		shutdown(t, ls...)
		cfg.Mode, cfg.Name = hybrid.ModeExact, "exact"
		exact, _ := startDay(t, b, 1, azoresDay(1000), cfg)
		ask(t, exact[0], "of this day", 1)
		time.Sleep(time.Second)
		if got := records.questions("of this day"); got != 1 {
			t.Errorf("%d questions of ModeExact, want 1: it does not know the age of the data", got)
		}
		shutdown(t, exact...)
	})
}

// TestRestoreFails has records that fail twice, and then a callback that panics.
func TestRestoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, records := redistest.NewBubble(t), newBill()
		ahead(b, 0)
		var log bytes.Buffer
		panics := false
		cfg := hybrid.Config{Restore: func(ctx context.Context, key string, begin time.Time) (int64, time.Time, error) {
			if panics {
				panic("no records")
			}
			return records.restore(ctx, key, begin)
		}}
		cfg.Hub.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ls, _ := startDay(t, b, 1, azoresDay(1000), cfg)
		l := ls[0]
		records.fails = 2
		records.add("k", 700)
		for range 250 {
			records.spend(t, l, "k", 1)
			time.Sleep(100 * time.Millisecond)
		}
		if got := records.questions("k"); got != 3 {
			t.Errorf("%d questions, want 3: 5 s apart until one is answered", got)
		}
		if s := l.Stats(); s.Restored != 1 || s.RestoreFailures != 2 {
			t.Errorf("restored %d, %d failures, want 1 and 2", s.Restored, s.RestoreFailures)
		}
		time.Sleep(time.Second)
		if left, want := ask(t, l, "k", 1).Remaining, 1000-records.used["k"]-1; left > want || left < want-60 {
			t.Errorf("%d left, want %d", left, want)
		}
		panics = true
		ask(t, l, "other", 1)
		time.Sleep(time.Second)
		if s := l.Stats(); s.RestoreFailures != 3 {
			t.Errorf("%d failures after a panic, want 3", s.RestoreFailures)
		}
		shutdown(t, l)
		if text := log.String(); !strings.Contains(text, "Config.Restore") || !strings.Contains(text, `cause="no records"`) ||
			!strings.Contains(text, "a panic: no records") {
			t.Errorf("the log does not tell of the failures: %s", text)
		}
	})
}

// TestRestoreKeepsAReset resets a key after a loss, before a process that asks comes in.
func TestRestoreKeepsAReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, records := redistest.NewBubble(t), newBill()
		ahead(b, 0)
		cfg := hybrid.Config{Restore: records.restore}
		ls, _ := startDay(t, b, 1, azoresDay(1000), cfg)
		records.spend(t, ls[0], "k", 900)
		ls = restartAll(t, b, ls, azoresDay(1000), cfg)
		records.spend(t, ls[0], "k", 1)
		time.Sleep(8 * time.Second)
		if err := ls[0].Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		more, _ := startDay(t, b, 1, azoresDay(1000), cfg)
		ls = append(ls, more...)
		for range 10 {
			records.spend(t, ls[1], "k", 1)
			time.Sleep(time.Second)
		}
		if got := records.questions("k"); got != 3 {
			t.Errorf("%d questions, want 3", got)
		}
		if left := ask(t, ls[0], "k", 1).Remaining; left < 900 {
			t.Errorf("%d left: the records took the reset back", left)
		}
		shutdown(t, ls...)
	})
}

// TestRestoreEndsWithClose closes a limiter while questions run and wait.
func TestRestoreEndsWithClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		ahead(b, 0)
		var running, most, all atomic.Int64
		hub := newHub(t, b.Link().Client(nil), hybrid.HubConfig{})
		l := add(t, hub, azoresDay(1000), hybrid.Config{Name: "api", Restore: func(ctx context.Context, _ string, _ time.Time) (int64, time.Time, error) {
			most.Store(max(most.Load(), running.Add(1)))
			all.Add(1)
			<-ctx.Done()
			running.Add(-1)
			return 0, time.Time{}, ctx.Err()
		}})
		time.Sleep(3 * time.Second)
		for _, key := range keysOf("k", 100) {
			ask(t, l, key, 1)
		}
		time.Sleep(time.Second)
		if running.Load() != 16 {
			t.Errorf("%d questions run, want 16", running.Load())
		}
		l.Close()
		if running.Load() != 0 || most.Load() != 16 || all.Load() != 16 {
			t.Errorf("%d questions run after Close, at most %d ran, all %d", running.Load(), most.Load(), all.Load())
		}
		if s := l.Stats(); s.RestoreFailures != 0 {
			t.Errorf("%d failures, want 0: Close ended them", s.RestoreFailures)
		}
	})
}

func TestRestoreIsForCalendars(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.PerSecond(5), hybridlimit.FixedWindow(5, time.Hour), hybridlimit.WindowFromUse(5, time.Hour),
	} {
		_, err := hybrid.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), limit, hybrid.Config{Name: "x", Restore: newBill().restore})
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Config.Restore") {
			t.Errorf("%v: %v", limit, err)
		}
	}
}
