package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// owing returns a limiter whose memory is full of keys. Each key owes one unit,
// and its sync is due in an hour.
func owing(t *testing.T, rdb *redistest.MemLink, cfg hybrid.Config) (*hybrid.Limiter, []string) {
	t.Helper()
	cfg.Mode, cfg.SyncInterval = hybrid.ModeDeferred, time.Hour
	l := newLimiter(t, rdb.Client(nil), still(1000), cfg)
	time.Sleep(2100 * time.Millisecond)
	keys := keysOf("k", cfg.MaxKeys)
	for range 2 { // the first call asks Redis
		for _, k := range keys {
			ask(t, l, k, 1)
		}
	}
	if s := l.Stats(); s.Owed != int64(len(keys)) || s.Keys != len(keys) {
		t.Fatalf("%d keys owe %d units, want %d each", s.Keys, s.Owed, len(keys))
	}
	return l, keys
}

func TestOwingKeysPayBeforeTheyGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link, rdb := b.Link(), b.Client(nil)
		const size = 10
		l, keys := owing(t, link, hybrid.Config{MaxKeys: size})
		link.Latency(time.Millisecond, time.Millisecond)

		// No key can be evicted yet, so the new key is decided by a direct
		// call.
		if res := ask(t, l, "new", 1); !res.Allowed || res.Source != hybridlimit.SourceRedis || res.Remaining != 999 {
			t.Errorf("a new key in full memory: %+v", res)
		}
		if s := l.Stats(); s.Refused != 1 || s.Evicted != 0 || s.Keys != size {
			t.Errorf("refused %d, evicted %d, %d keys in memory; want 1, 0, %d", s.Refused, s.Evicted, s.Keys, size)
		}
		time.Sleep(20 * time.Millisecond) // the new key made the others sync
		if s := l.Stats(); s.Paid == 0 || s.Owed != size-s.Paid {
			t.Errorf("paid %d, owed %d", s.Paid, s.Owed)
		}
		for i := range 5 {
			if res := ask(t, l, fmt.Sprint("fresh", i), 1); !res.Allowed {
				t.Errorf("new key %d: %+v", i, res)
			}
		}
		if s := l.Stats(); s.Refused != 1 || s.Evicted != 5 || s.Keys != size {
			t.Errorf("refused %d, evicted %d, %d keys in memory; want 1, 5, %d", s.Refused, s.Evicted, s.Keys, size)
		}
		shutdown(t, l)
		all := append(append(keys, "new"), keysOf("fresh", 5)...)
		if got, s := debited(t, rdb, "api", all...), l.Stats(); got != 26 || s.Admitted != 26 || balance(t, s) != 26 {
			t.Errorf("Redis debited %d of 26: %+v", got, s)
		}
	})
}

func TestFullMemoryAndNoRedis(t *testing.T) {
	for _, fallback := range []hybrid.Fallback{hybrid.FallbackShare, hybrid.FallbackFull, hybrid.FallbackAllowAll, hybrid.FallbackDenyAll} {
		t.Run(fallback.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link, rdb := b.Link(), b.Client(nil)
				l, keys := owing(t, link, hybrid.Config{MaxKeys: 10, Fallback: fallback})
				link.Refuse(true)
				link.CutAll()
				for i := range 20 { // either needs no memory, or fits into the allowance
					res := ask(t, l, fmt.Sprint("new", i), 2)
					if res.Source != hybridlimit.SourceFallback || res.Allowed != (fallback != hybrid.FallbackDenyAll) {
						t.Errorf("new key %d: %+v", i, res)
					}
				}
				s := l.Stats()
				if s.Overflow != 20 || s.Keys != 10 || s.Owed != 10 {
					t.Errorf("overflow %d, %d keys that owe %d; want 20, 10, 10", s.Overflow, s.Keys, s.Owed)
				}
				link.Refuse(false)
				time.Sleep(3 * time.Second)
				if res := ask(t, l, "late", 1); !res.Allowed || res.Source != hybridlimit.SourceRedis {
					t.Errorf("with Redis back: %+v", res)
				}
				shutdown(t, l)
				s = l.Stats()
				all := append(append(keys, "late"), keysOf("new", 20)...)
				if got := debited(t, rdb, "api", all...); got != balance(t, s) || got != s.Admitted-s.Dropped || got != 21 {
					t.Errorf("Redis debited %d, want 21: %+v", got, s)
				}
			})
		})
	}
}

// TestEvictionLosesNothing checks that evictions lose no unit that memory
// counts. Memory holds 8 keys, 60 are in use, and the network fails now and
// then.
func TestEvictionLosesNothing(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seed := testenv.Seed(t)
				rng, net := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
				b := redistest.NewBubble(t)
				link, rdb := b.Link(), b.Client(nil)
				// The books do not have a direct call whose answer was lost
				// (see Stats). So faults hit syncs only.
				l := newLimiter(t, link.Client(nil), still(50), hybrid.Config{Mode: mode, MaxKeys: 8, Overshoot: overshoot(mode), MaxWait: time.Second})
				time.Sleep(2100 * time.Millisecond)
				link.Script(func(_ int, cmd []string) redistest.Verdict {
					v := redistest.Forward().Late(time.Duration(net.IntN(3e6)), time.Duration(net.IntN(3e6)))
					if len(cmd) > 4 && isSync(cmd) && net.IntN(5) == 0 {
						v = redistest.DropReply(redistest.ThenClose)
					}
					return v
				})
				keys := keysOf("k", 60)
				// The number of evictions in 500 calls is random: while all
				// keys owe, none can be evicted.
				for i := 0; i < 500 || i < 5000 && l.Stats().Evicted < 50; i++ {
					k := min(rng.ExpFloat64()*8, 59)
					ask(t, l, keys[int(k)], 1+rng.Int64N(3))
					if rng.IntN(4) == 0 {
						time.Sleep(time.Duration(rng.IntN(20e6)))
					}
				}
				if s := l.Stats(); s.Evicted < 50 || s.Keys != 8 {
					t.Errorf("evicted %d, %d keys in memory", s.Evicted, s.Keys)
				}
				link.Script(nil)
				time.Sleep(time.Second)
				shutdown(t, l)
				s := l.Stats()
				// Redis never hears of the units that the overflow admits
				// without it: at most 3 units a call.
				if got := debited(t, rdb, "api", keys...); got != balance(t, s) || s.Owed != 0 || s.Dropped > 3*s.Overflow {
					t.Errorf("seed %d: Redis debited %d: %+v", seed, got, s)
				}
			})
		})
	}
}

// TestDenialsOfAnEvictedKeyCount checks that the denials from memory of a key
// count after it was evicted, although the fast path leaves them in the budget.
func TestDenialsOfAnEvictedKeyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(1), hybrid.Config{MaxKeys: 2})
		time.Sleep(2100 * time.Millisecond)
		const calls = 100
		for i := range calls {
			if res := ask(t, l, "denied", 1); res.Allowed != (i == 0) {
				t.Fatalf("call %d: %+v", i, res)
			}
		}
		time.Sleep(2 * time.Second) // leases of the new keys end
		for i := range 4 {
			ask(t, l, fmt.Sprint("new", i), 1)
			time.Sleep(2 * time.Second)
		}
		s := l.Stats()
		if s.Evicted < 3 || s.Decisions() != calls+4 || s.Denied[hybridlimit.SourceDenyCache] < calls-2 {
			t.Errorf("%d evicted, %d decisions, denied %v; want 3, %d and %d from memory", s.Evicted, s.Decisions(), s.Denied, calls+4, calls-2)
		}
	})
}

func overshoot(m hybrid.Mode) float64 {
	if m == hybrid.ModeAuto {
		return 1
	}
	return 0
}
