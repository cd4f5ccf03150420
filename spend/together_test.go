package spend_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/spend"
)

// hour are limits of each algorithm that refill nothing in a test.
var hour = map[string]hybridlimit.Limit{
	"token-bucket": hybridlimit.TokenBucket(1, time.Hour, 10_000), "leaky-bucket": hybridlimit.LeakyBucket(1, time.Hour, 10_000),
	"queue": hybridlimit.LeakyQueue(1, time.Hour, 10_000), "fixed-window": hybridlimit.FixedWindow(10_000, 24*time.Hour),
	"sliding-window": hybridlimit.SlidingWindow(10_000, 24*time.Hour), "sliding-log": hybridlimit.SlidingLog(10_000, time.Hour),
}

// TestAllTogether has limiters of all algorithms, with classes and permits, in one hub of each of three processes.
// Their calls settle, charge, pause and observe at the same time, while Redis hangs, loses replies, is away, or is
// wiped. The books of each limiter agree. After it, an observation still lowers each level to what it says, and no
// process admits more.
func TestAllTogether(t *testing.T) {
	faults := map[string]func(*redistest.Bubble, []*redistest.MemLink){
		"none": func(*redistest.Bubble, []*redistest.MemLink) {},
		"hang": func(_ *redistest.Bubble, links []*redistest.MemLink) {
			for _, l := range links {
				l.Pause()
				time.AfterFunc(1300*time.Millisecond, l.Resume)
			}
		},
		"lost replies": func(_ *redistest.Bubble, links []*redistest.MemLink) {
			for _, l := range links {
				l.Script(func(n int, _ []string) redistest.Verdict {
					if n%4 == 0 {
						return redistest.DropReply(redistest.ThenClose)
					}
					return redistest.Forward()
				})
				time.AfterFunc(2*time.Second, func() { l.Script(nil) })
			}
		},
		"away": func(b *redistest.Bubble, _ []*redistest.MemLink) {
			b.Kill()
			time.Sleep(3 * time.Second)
			b.Restart()
		},
		"wiped": func(b *redistest.Bubble, _ []*redistest.MemLink) { b.Mini.FlushAll() },
	}
	for fault, begin := range faults {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
			t.Run(fmt.Sprint(fault, ", ", mode), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { together(t, mode, begin) })
			})
		}
	}
}

// member is the limiters of one process.
type member struct {
	hub   *hybrid.Hub
	of    map[string]*hybrid.Limiter // also of the classes
	calls *hybrid.ConcurrencyLimiter
}

func together(t *testing.T, mode hybrid.Mode, begin func(*redistest.Bubble, []*redistest.MemLink)) {
	b := redistest.NewBubble(t)
	var links []*redistest.MemLink
	var fleet []member
	for range 3 {
		link := b.Link()
		link.Latency(time.Millisecond, time.Millisecond)
		links = append(links, link)
		fleet = append(fleet, newMember(t, link, mode))
		time.Sleep(137 * time.Millisecond)
	}
	time.Sleep(4 * time.Second)
	var all sync.WaitGroup
	seed := testenv.Seed(t)
	for i, m := range fleet {
		for j := range 4 {
			all.Go(func() { m.work(t, rand.New(rand.NewPCG(seed, uint64(10*i+j)))) })
		}
	}
	time.Sleep(time.Second)
	begin(b, links)
	all.Wait()
	time.Sleep(20 * time.Second) // all is told, and no pause is left

	for name, limit := range hour {
		if limit.Algorithm == hybridlimit.AlgSlidingLog {
			continue
		}
		for _, m := range fleet {
			observe(t, m.of[name], 100, time.Minute)
		}
		time.Sleep(time.Second)
		var admitted int64
		for range 100 {
			for _, m := range fleet {
				res, err := m.of[name].AllowN(t.Context(), "k", 1)
				if err != nil {
					t.Fatal(err)
				}
				admitted += res.Granted
			}
		}
		most := int64(100)
		bucket := limit.Algorithm == hybridlimit.AlgTokenBucket || limit.Algorithm == hybridlimit.AlgLeakyBucket
		if mode == hybrid.ModeAuto || mode == hybrid.ModeDeferred || mode == hybrid.ModeStrict && !bucket {
			most = 300 // each process may use what it sees, on credit or by a lease that no ledger has
		}
		if admitted > most || admitted < 60 && bucket { // leases of others may hold some
			t.Errorf("%s: %d units after an observation of 100, want 60 to %d", name, admitted, most)
		}
	}
	time.Sleep(5 * time.Second)
	for _, m := range fleet {
		for name, l := range m.of {
			s := l.Stats()
			if got, want := s.Paid+s.Granted-s.Refunded, s.Admitted+s.Expired+s.Held+s.Lost-s.Owed-s.Dropped-s.Forgiven; got != want {
				t.Errorf("%s: the books differ: %d and %d: %+v", name, got, want, s)
			}
		}
		if err := m.hub.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, key := range b.Mini.Keys() {
		if b.Mini.TTL(key) <= 0 {
			t.Errorf("%s has no TTL", key)
		}
	}
}

func newMember(t *testing.T, link *redistest.MemLink, mode hybrid.Mode) member {
	h, err := hybrid.NewHub(link.Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	m := member{hub: h, of: map[string]*hybrid.Limiter{}}
	for name, limit := range hour {
		cfg := hybrid.Config{Name: name, Mode: mode}
		if limit.Algorithm != hybridlimit.AlgSlidingLog {
			cfg.Classes = []hybrid.Class{{Name: "rest", Floor: 0.001}}
		}
		if m.of[name], err = h.Limiter(limit, cfg); err != nil {
			t.Fatal(err)
		}
		if cfg.Classes != nil {
			if m.of[name+", rest"], err = m.of[name].Class("rest"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if m.calls, err = h.Concurrency(hybridlimit.Concurrent(5), hybrid.ConcurrencyConfig{Name: "calls"}); err != nil {
		t.Fatal(err)
	}
	return m
}

// work makes calls for four seconds.
func (m member) work(t *testing.T, rng *rand.Rand) {
	names := make([]string, 0, len(hour))
	for name := range hour {
		names = append(names, name)
	}
	for start := time.Now(); time.Since(start) < 4*time.Second; time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) {
		name := names[rng.IntN(len(names))]
		l := m.of[name]
		if rest := m.of[name+", rest"]; rest != nil && rng.IntN(3) == 0 {
			l = rest
		}
		m.step(t, rng, l)
	}
}

func (m member) step(t *testing.T, rng *rand.Rand, l *hybrid.Limiter) {
	var err error
	switch rng.IntN(12) {
	case 0:
		err = spend.Pause(t.Context(), l, "paused", time.Now().Add(time.Duration(1+rng.IntN(300))*time.Millisecond))
	case 1, 2:
		err = spend.Observe(t.Context(), l, "k", 6000+rng.Int64N(6_000), time.Duration(rng.IntN(2000)-10)*time.Millisecond)
	case 3:
		err = spend.ObserveWindow(t.Context(), l, "k", 6000+rng.Int64N(6000), time.Duration(rng.IntN(2000))*time.Millisecond)
	case 4:
		_, err = l.Charge(t.Context(), "k", 1+rng.Int64N(3))
	case 5:
		_, err = l.AllowN(t.Context(), "paused", 1)
	default:
		asks := []hybridlimit.Ask{{Limiter: l, Key: "k", N: 1 + rng.Int64N(4)}, {Limiter: m.calls, Key: "k", N: 1}}
		s, _, failed := spend.Begin(t.Context(), asks[:1+rng.IntN(2)]...)
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		if failed == nil && rng.IntN(4) > 0 {
			_, failed = s.Use(t.Context(), 0, rng.Int64N(6))
		}
		err = errors.Join(failed, s.Settle(t.Context()))
	}
	// Redis decides each call of a log and of ModeExact. While it is away, such a charge or give-back has an error.
	if err != nil && !errors.Is(err, hybridlimit.ErrUnavailable) && !errors.Is(err, hybridlimit.ErrUnsupported) {
		t.Error(err)
	}
}
