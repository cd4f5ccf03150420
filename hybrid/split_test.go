package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// into splits every key into so many parts.
func into(parts int) func(string) int { return func(string) int { return parts } }

// partsInRedis returns the states of the parts of a key, from the first one, and whether Redis has a state of the whole
// key.
func partsInRedis(tb testing.TB, b *redistest.Bubble, name, key string, of int) (parts []wire.State, whole bool) {
	tb.Helper()
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	tag := names.Tag(key)
	rdb := b.Client(nil)
	for nth := 1; nth <= of; nth++ {
		raw, _ := rdb.Get(context.Background(), names.PartState(names.PartTag(tag, nth, of), name, nth, of, key)).Result()
		state, _ := wire.DecodeState(raw)
		parts = append(parts, state)
	}
	n, err := rdb.Exists(context.Background(), names.State(tag, name, key)).Result()
	if err != nil {
		tb.Fatal(err)
	}
	return parts, n > 0
}

// TestSplitBound offers one split key twice its limit, from 12 processes, under each algorithm and mode. Each part has
// as many processes. They admit what the limit allows, and no more than that and the credit. Redis has a state of each
// part. At the end the books are equal.
func TestSplitBound(t *testing.T) {
	t.Parallel()
	const processes, of, seconds = 12, 3, 40
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(121, time.Second, 250), hybridlimit.FixedWindow(241, 2*time.Second),
		hybridlimit.SlidingWindow(241, 2*time.Second), hybridlimit.WindowFromUse(241, 2*time.Second),
	} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
			t.Run(fmt.Sprint(limit, " ", mode), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					var ls []*hybrid.Limiter
					var have [of + 1]int
					for len(ls) < processes {
						l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Name: "api", Mode: mode, Split: into(of)})
						i, err := l.Inspect(t.Context(), "hot")
						if err != nil {
							t.Fatal(err)
						}
						if have[i.Part]++; have[i.Part] > processes/of {
							l.Close()
							continue
						}
						ls = append(ls, l)
					}
					time.Sleep(3 * time.Second)
					var admitted int64
					for range seconds * 20 {
						for _, l := range ls {
							if ask(t, l, "hot", 1).Allowed {
								admitted++
							}
						}
						time.Sleep(50 * time.Millisecond)
					}
					credit := ls[0].Stats().Credit
					if mode == hybrid.ModeExact || mode == hybrid.ModeStrict {
						credit = 0
					}
					most, rate := limit.BurstSize()+121*seconds+(processes-1)*credit, int64(120*seconds)
					if limit.Algorithm != hybridlimit.AlgTokenBucket {
						most += limit.BurstSize() // windows begin at other times
					}
					least := rate * 97 / 100
					if limit.Calendar.Unit == hybridlimit.FromUse { // the next period begins with a call, up to 50 ms later
						least = rate * 94 / 100
					}
					if admitted > most || admitted < least {
						t.Errorf("admitted %d units, want %d to %d", admitted, least, most)
					}
					_, whole := partsInRedis(t, b, "api", "hot", of)
					if whole {
						t.Error("Redis has a state of the whole key")
					}
					shutdown(t, ls...)
					parts, _ := partsInRedis(t, b, "api", "hot", of)
					var debited int64
					for i, p := range parts {
						if debited += p.Since; p.Since < admitted/of/2 {
							t.Errorf("part %d has %d of %d units", i+1, p.Since, admitted)
						}
					}
					var all []hybrid.Stats
					for _, l := range ls {
						all = append(all, l.Stats())
					}
					if !explained(t, debited, all...) {
						t.Errorf("Redis has debited %d units, which the processes do not explain", debited)
					}
				})
			})
		}
	}
}

// TestSplitMoves has one process on a key with two parts. Its part is used up again and again, so it uses the other
// one.
func TestSplitMoves(t *testing.T) {
	t.Parallel()
	for _, cfg := range []hybrid.Config{{}, {Mode: hybrid.ModeExact}, {Mode: hybrid.ModeDeferred, MaxWait: -1}} {
		t.Run(fmt.Sprint(cfg.Mode, " waits ", cfg.MaxWait), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				cfg.Split = into(2)
				l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(100, time.Second, 1000), cfg)
				time.Sleep(3 * time.Second)
				used := map[int]int64{}
				var admitted int64
				for range 200 * 5 {
					for range 30 {
						if ask(t, l, "hot", 1).Allowed {
							admitted++
						}
					}
					i, err := l.Inspect(t.Context(), "hot")
					if err != nil {
						t.Fatal(err)
					}
					used[i.Part]++
					time.Sleep(200 * time.Millisecond)
				}
				if used[1] < 20 || used[2] < 20 || len(used) != 2 {
					t.Errorf("used its parts at %v of 1000 times", used)
				}
				if admitted < 1000+50*200*95/100 || admitted > 1000+100*200 { // a part has 500, and 50 a second
					t.Errorf("admitted %d units", admitted)
				}
				shutdown(t, l)
				balance(t, l.Stats())
			})
		})
	}
}

// TestSplitVerbs uses each verb on a split key: its cost, its limit and its errors are those of the documentation.
func TestSplitVerbs(t *testing.T) {
	t.Parallel()
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				limit := hybridlimit.TokenBucket(10, time.Minute, 103) // bursts of 26, 26, 26 and 25
				l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode, Split: into(4), Classes: []hybrid.Class{{Name: "batch", Floor: 0.2}}})
				time.Sleep(3 * time.Second)
				ctx := t.Context()
				if res := ask(t, l, "k", 26); res.Allowed || res.RetryAfter != hybridlimit.Never || res.Limit != 103 {
					t.Errorf("26 units: %+v", res)
				}
				if _, err := l.Reserve(ctx, "k", 26); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
					t.Errorf("Reserve of 26 units: %v", err)
				}
				if res := ask(t, l, "k", 5); !res.Allowed || res.Limit != 103 || res.Remaining > 21 || res.Remaining < 15 {
					t.Errorf("5 units: %+v", res)
				}
				r, err := l.Reserve(ctx, "k", 5)
				if err != nil || !r.Allowed {
					t.Fatal(err)
				}
				if err := r.Cancel(ctx); err != nil {
					t.Error(err)
				}
				if res, err := l.Wait(ctx, "k", 2); err != nil || res.Limit != 103 {
					t.Errorf("Wait: %+v, %v", res, err)
				}
				if res, err := l.Charge(ctx, "k", 3); err != nil || res.Limit != 103 {
					t.Errorf("Charge: %+v, %v", res, err)
				}
				if res, err := l.Refund(ctx, "k", 3); err != nil || res.Limit != 103 {
					t.Errorf("Refund: %+v, %v", res, err)
				}
				if res, err := l.Peek(ctx, "k"); err != nil || !res.Allowed || res.Limit != 103 || res.Remaining > 25 {
					t.Errorf("Peek: %+v, %v", res, err)
				}
				res, err := hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: "k", N: 1}, hybridlimit.Ask{Limiter: l, Key: "other", N: 1})
				if err != nil || !res.Allowed || res.Limit != 103 {
					t.Errorf("AllowAll: %+v, %v", res, err)
				}
				batch, err := l.Class("batch")
				if err != nil {
					t.Fatal(err)
				}
				if res := ask(t, batch, "k", 1); !res.Allowed || res.Limit != 103-21 { // the floor of a part is 6
					t.Errorf("a class: %+v", res)
				}
				for range 2 { // the second call finds the limit of the first one
					if res, err := l.AllowLimit(ctx, "k", 1, hybridlimit.TokenBucket(10, time.Minute, 200)); err != nil || !res.Allowed || res.Limit != 200 {
						t.Errorf("AllowLimit: %+v, %v", res, err)
					}
				}
				if res, err := l.AllowAtMost(ctx, "k", 100); err != nil || res.Granted < 1 || res.Granted > 25 {
					t.Errorf("AllowAtMost: %+v, %v", res, err)
				}
				time.Sleep(time.Second)
				i, err := l.InspectRedis(ctx, "k")
				if err != nil || i.Parts != 4 || i.Part < 1 || i.Part > 4 || i.Limit != limit || i.Redis == nil || i.Redis.Limit != limit {
					t.Fatalf("Inspect: %+v, %v", i, err)
				}
				if i.Redis.Left < 103-26 || i.Redis.Left > 103-5 || !strings.Contains(i.Sentence, fmt.Sprintf("this process uses part %d of 4", i.Part)) {
					t.Errorf("Redis has %+v: %s", i.Redis, i.Sentence)
				}
				if got := l.Policy("k").Limit; got != limit {
					t.Errorf("the policy says %v", got)
				}
				if err := l.Reset(ctx, "k"); err != nil {
					t.Error(err)
				}
				if i, err = l.InspectRedis(ctx, "k"); err != nil || i.Redis.Left != 103 {
					t.Errorf("after a Reset: %+v, %v", i.Redis, err)
				}
				if err := l.SetLimit(hybridlimit.TokenBucket(10, time.Minute, 50)); err != nil {
					t.Fatal(err)
				}
				if res := ask(t, l, "k", 1); !res.Allowed || res.Limit != 50 {
					t.Errorf("after SetLimit: %+v", res)
				}
				if err := l.SetLimit(hybridlimit.TokenBucket(3, time.Minute, 50)); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"k", "another"} {
					if _, err := l.Allow(ctx, key); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Config.Split") {
						t.Errorf("four parts of a rate of 3: %v", err)
					}
				}
			})
		})
	}
}

// TestSplitOfBadInput says what is wrong, and changes nothing.
func TestSplitOfBadInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		bucket := hybridlimit.TokenBucket(5, time.Second, 4)
		for _, c := range []struct {
			limit hybridlimit.Limit
			parts int
			want  error
			text  string
		}{
			{bucket, 0, nil, ""},
			{bucket, 1, nil, ""},
			{bucket, 4, nil, ""},
			{bucket, -1, hybridlimit.ErrInvalid, "-1 parts: must be 0 to 16, which is HubConfig.Tags"},
			{bucket, 17, hybridlimit.ErrInvalid, "17 parts: must be 0 to 16, which is HubConfig.Tags"},
			{bucket, 5, hybridlimit.ErrInvalid, "5 parts of the limit 5 per 1s, burst 4 (token bucket): must be at most its rate and its burst, 4"},
			{hybridlimit.FixedWindow(3, time.Second), 4, hybridlimit.ErrInvalid, "at most its rate and its burst, 3"},
			{hybridlimit.SlidingLog(100, time.Second), 2, hybridlimit.ErrUnsupported, "a limit of the algorithm sliding log cannot be split"},
			{hybridlimit.LeakyQueue(100, time.Second, 10), 2, hybridlimit.ErrUnsupported, "a limit of the algorithm leaky queue cannot be split"},
			{hybridlimit.Unlimited(), 2, nil, ""},
			{hybridlimit.Blocked(), 2, nil, ""},
		} {
			l := newLimiter(t, b.Client(nil), c.limit, hybrid.Config{Split: into(c.parts)})
			_, err := l.Allow(t.Context(), "k")
			if !errors.Is(err, c.want) || err != nil && (!strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), `Config.Split("k")`)) {
				t.Errorf("%v in %d parts: %v, want %q", c.limit, c.parts, err, c.text)
			}
			if c.want != nil && l.Stats().Keys != 0 {
				t.Errorf("%v in %d parts: the key is in memory", c.limit, c.parts)
			}
			l.Close()
		}
		_, err := hybrid.New(b.Client(nil), hybridlimit.CalendarWindow(100, hybridlimit.Calendar{Unit: hybridlimit.Day}), hybrid.Config{
			Name: "api", Split: into(2),
			Restore: func(context.Context, string, time.Time) (int64, time.Time, error) { return 0, time.Time{}, nil },
		})
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Config.Split") {
			t.Errorf("Split with Restore: %v", err)
		}
	})
}

// TestTwoNumbersOfParts lets processes split a key in two ways, and one not at all. After a minute each side logs the
// other.
func TestTwoNumbersOfParts(t *testing.T) {
	t.Parallel()
	const line = "other processes split the keys of this limiter into another number of parts"
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		start := func(split func(string) int) (*hybrid.Limiter, capture) {
			log := newCapture()
			l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(100), hybrid.Config{Split: split, Hub: hybrid.HubConfig{Logger: slog.New(log)}})
			return l, log
		}
		four, logFour := start(into(4))
		same, logSame := start(into(4))
		time.Sleep(2500 * time.Millisecond)
		ask(t, four, "k", 1)
		time.Sleep(3 * time.Minute) // the other one has not split a key
		ask(t, same, "k", 1)
		time.Sleep(3 * time.Minute)
		if n := countLines(logFour, line) + countLines(logSame, line); n != 0 {
			t.Errorf("one number of parts: %d lines", n)
		}
		if n := countLines(logFour, "Config.Split gains nothing on a single Redis"); n != 1 {
			t.Errorf("on a single Redis: %d lines", n)
		}
		whole, logWhole := start(nil)
		ask(t, whole, "k", 1)
		time.Sleep(2 * time.Minute)
		for _, c := range []struct {
			log  capture
			want string
		}{{logFour, "parts=4 other=1 processes=1"}, {logSame, "parts=4 other=1 processes=1"}, {logWhole, "parts=1 other=4 processes=2"}} {
			if countLines(c.log, line) != 1 || countLines(c.log, c.want) != 1 {
				t.Errorf("no %q in\n%s", c.want, strings.Join(c.log.all(), "\n"))
			}
		}
	})
}

// TestSplitUnderChanges makes random calls of all verbs on split keys of one hub, while limits and the memory change.
// No call fails, and no answer is impossible.
func TestSplitUnderChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		limits := []hybridlimit.Limit{hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.SlidingWindow(100, time.Second)}
		var ls []*hybrid.Limiter
		for i, limit := range limits {
			for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
				cfg := hybrid.Config{Name: fmt.Sprint("l", i, "-", mode), Mode: mode, MaxKeys: 6, Split: func(key string) int { return len(key) % 4 * 3 }}
				ls = append(ls, add(t, h, limit, cfg))
			}
		}
		time.Sleep(3 * time.Second)
		ctx, rnd := t.Context(), rand.New(rand.NewPCG(1, 2))
		for i := range 8000 {
			l, key, n := ls[rnd.IntN(len(ls))], strings.Repeat("k", 1+rnd.IntN(8)), 1+rnd.Int64N(5)
			var err error
			var res hybridlimit.Result
			switch rnd.IntN(12) {
			case 0:
				res, err = l.AllowAtMost(ctx, key, n)
			case 1:
				var r *hybridlimit.Reservation
				if r, err = l.Reserve(ctx, key, n); err == nil && rnd.IntN(2) == 0 {
					err = r.Cancel(ctx)
				}
			case 2:
				res, err = l.Charge(ctx, key, n)
			case 3:
				res, err = l.Refund(ctx, key, n)
			case 4:
				res, err = l.Peek(ctx, key)
			case 5:
				_, err = l.InspectRedis(ctx, key)
			case 6:
				limit := l.Limit()
				limit.Rate = 50 + rnd.Int64N(100)
				if limit.Burst > 0 {
					limit.Burst = 50 + rnd.Int64N(300)
				}
				if rnd.IntN(5) == 0 {
					err = l.SetLimit(limit)
				} else {
					res, err = l.AllowLimit(ctx, key, n, limit)
				}
			case 7:
				if rnd.IntN(20) == 0 {
					err = l.Reset(ctx, key)
				}
			case 8:
				o := ls[rnd.IntN(len(ls))]
				_, err = hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: key, N: n}, hybridlimit.Ask{Limiter: o, Key: key + "k", N: n})
			default:
				res, err = l.AllowN(ctx, key, n)
			}
			if err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			if res.Remaining < 0 || res.Remaining > max(res.Limit, 1) || res.Allowed && res.Granted < 1 && res.Source == hybridlimit.SourceRedis && res.Remaining == 0 {
				t.Fatalf("call %d: %+v", i, res)
			}
			time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Millisecond))))
		}
		for _, l := range ls {
			balance(t, l.Stats())
		}
	})
}
