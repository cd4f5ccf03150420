package hybrid_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// limitKey sets the fleet's limit of a key of the limiter "api" from a hub without limiters, as an operator's tool does.
func limitKey(t *testing.T, b *redistest.Bubble, cfg hybrid.HubConfig, key string, limit hybridlimit.Limit) {
	t.Helper()
	h := newHub(t, b.Client(nil), cfg)
	defer h.Close()
	if err := h.SetFleetKeyLimit(t.Context(), "api", key, limit); err != nil {
		t.Error(err)
	}
}

// keyFleet is processes of which each gets the limit of keys from another place, if the fleet has none.
func keyFleet(t *testing.T, b *redistest.Bubble, cfg hybrid.HubConfig) []*hybrid.Limiter {
	t.Helper()
	var ls []*hybrid.Limiter
	for i := range 3 {
		c := hybrid.Config{Name: "api"}
		if i == 1 {
			c.LimitFor = func(string) hybridlimit.Limit { return still(100) }
		}
		h := newHub(t, b.Client(nil), cfg)
		ls = append(ls, add(t, h, still(100), c))
		if i == 2 {
			if err := h.SetSettings(map[string]hybrid.Settings{"api": {Keys: map[string]hybridlimit.Limit{"user:ann": still(100)}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ready(t, ls...)
	return ls
}

// decidedBy returns the bursts by which processes decide about a key.
func decidedBy(t *testing.T, ls []*hybrid.Limiter, key string) string {
	t.Helper()
	var out []string
	for _, l := range ls {
		i, err := l.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if res := ask(t, l, key, 1); res.Limit != i.Limit.BurstSize() {
			t.Errorf("decided by %d, but inspected %v", res.Limit, i.Limit)
		}
		out = append(out, fmt.Sprint(i.Limit.BurstSize(), " ", i.LimitFrom))
	}
	return strings.Join(out, ", ")
}

// TestFleetKeyLimit checks that the fleet's limit of a key reaches all processes within two heartbeats, also with hashed keys, that
// it wins over the limits of keys of each process, that other keys keep theirs, that a new process has it when it is ready, and
// that it can be taken back. Used units stay used.
func TestFleetKeyLimit(t *testing.T) {
	for name, cfg := range map[string]hybrid.HubConfig{"plain": {}, "hashed": {HashKeys: hybridlimit.Secret(strings.Repeat("s", 32))}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				ls := keyFleet(t, b, cfg)
				time.Sleep(3 * time.Second)
				want := func(when, key, want string) {
					t.Helper()
					if got := decidedBy(t, ls, key); got != want {
						t.Errorf("%s: %s: %s, want %s", when, key, got, want)
					}
				}
				const before = "100 config, 100 config, 100 key"
				want("before", "user:ann", before)
				limitKey(t, b, cfg, "user:ann", still(7))
				limitKey(t, b, cfg, "user:bob", hybridlimit.Blocked())
				time.Sleep(heard)
				want("set", "user:ann", "7 fleet_key, 7 fleet_key, 7 fleet_key")
				want("set", "user:eve", "100 config, 100 config, 100 config")
				for _, l := range ls {
					if res := ask(t, l, "user:bob", 1); res.Allowed {
						t.Errorf("blocked for the fleet: %+v", res)
					}
				}
				late := add(t, newHub(t, b.Client(nil), cfg), still(100), hybrid.Config{Name: "api"})
				ready(t, late)
				ls = append(ls, late)
				want("a new process", "user:ann", "7 fleet_key, 7 fleet_key, 7 fleet_key, 7 fleet_key")

				limitKey(t, b, cfg, "user:ann", still(300))
				time.Sleep(heard)
				want("raised", "user:ann", "300 fleet_key, 300 fleet_key, 300 fleet_key, 300 fleet_key")
				limitKey(t, b, cfg, "user:ann", hybridlimit.Limit{})
				time.Sleep(heard)
				want("taken back", "user:ann", before+", 100 config")
				// Used units stay used through all of it: 27 calls of one unit.
				time.Sleep(2 * time.Second)
				i, err := ls[0].InspectRedis(t.Context(), "user:ann")
				if err != nil || i.Redis == nil || i.Redis.Debited > 27 || i.Redis.Debited < 7 {
					t.Errorf("%+v, %v", i.Redis, err)
				}
				for _, l := range ls {
					balance(t, l.Stats())
				}
			})
		})
	}
}

// TestFleetKeyLimitsSurviveALoss wipes Redis, and sets another key before the processes have told theirs. A limit that was taken
// back stays away, also if only a process that was cut off meanwhile still has it.
func TestFleetKeyLimitsSurviveALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		ls := keyFleet(t, b, hybrid.HubConfig{})
		limitKey(t, b, hybrid.HubConfig{}, "user:ann", still(7))
		limitKey(t, b, hybrid.HubConfig{}, "user:bob", still(8))
		time.Sleep(heard)
		limitKey(t, b, hybrid.HubConfig{}, "user:bob", hybridlimit.Limit{})
		time.Sleep(heard)
		b.Mini.FlushAll()
		limitKey(t, b, hybrid.HubConfig{}, "user:eve", still(9))
		time.Sleep(5 * time.Second)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		all, err := h.FleetKeyLimits(t.Context(), "api")
		if err != nil || len(all) != 2 || all[0].Key != "user:ann" || all[0].Limit != still(7) || all[1].Key != "user:eve" || all[1].At.IsZero() {
			t.Errorf("%+v, %v", all, err)
		}
		for key, want := range map[string]string{"user:ann": "7 fleet_key", "user:eve": "9 fleet_key"} {
			if got, want := decidedBy(t, ls, key), strings.Join([]string{want, want, want}, ", "); got != want {
				t.Errorf("%s: %s, want %s", key, got, want)
			}
		}
		if got := decidedBy(t, ls, "user:bob"); strings.Contains(got, "fleet_key") {
			t.Errorf("a limit that was taken back is in force again: %s", got)
		}
		// Without a heartbeat they expire. No key stays for good.
		if ttl := b.Mini.TTL(fleetNames.KeyLimits("api")); ttl <= 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("the TTL is %v", ttl)
		}
		shutdown(t, ls[1], ls[2]) // for a shorter test
		b.Mini.SetTTL(fleetNames.KeyLimits("api"), 2*time.Hour)
		time.Sleep(91 * time.Minute) // processes tell their settings again in 30 to 90 minutes
		if ttl := b.Mini.TTL(fleetNames.KeyLimits("api")); ttl <= 20*time.Hour {
			t.Errorf("after an hour and a half the TTL is %v", ttl)
		}
	})
}

// TestFleetKeyLimitsThatDoNotFit checks limits that a process cannot apply: they count as none and are logged; and bad calls, which
// change nothing.
func TestFleetKeyLimitsThatDoNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Hub: hybrid.HubConfig{Logger: slog.New(log)}})
		ready(t, l)
		limitKey(t, b, hybrid.HubConfig{}, "a", hybridlimit.FixedWindow(5, time.Hour)) // the tool does not know the algorithm
		limitKey(t, b, hybrid.HubConfig{}, "b", still(3))
		time.Sleep(heard)
		if a, c := decidedBy(t, []*hybrid.Limiter{l}, "a"), decidedBy(t, []*hybrid.Limiter{l}, "b"); a != "100 config" || c != "3 fleet_key" {
			t.Errorf("%s, %s", a, c)
		}
		if lines := strings.Join(log.all(), "\n"); !strings.Contains(lines, "this process cannot apply the fleet's limit") || !strings.Contains(lines, "5/h fixed window") {
			t.Errorf("%s", lines)
		}
		h := l.Hub()
		for key, bad := range map[string]struct {
			limit hybridlimit.Limit
			want  error
		}{
			"":                       {still(5), hybridlimit.ErrEmptyKey},
			strings.Repeat("k", 600): {still(5), hybridlimit.ErrKeyTooLong},
			"another algorithm":      {hybridlimit.FixedWindow(5, time.Hour), hybridlimit.ErrInvalid},
			"no limit":               {hybridlimit.Limit{Rate: -1, Period: 1}, hybridlimit.ErrInvalid},
			"calls in flight":        {hybridlimit.Concurrent(5), hybridlimit.ErrInvalid},
		} {
			if err := h.SetFleetKeyLimit(t.Context(), "api", key, bad.limit); !errors.Is(err, bad.want) {
				t.Errorf("%.20q: %v", key, err)
			}
		}
		if err := h.SetFleetKeyLimit(t.Context(), "a b", "k", still(5)); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("a bad name: %v", err)
		}
		full := fmt.Sprintf("1 %d\n", time.Now().UnixMicro())
		for i := range hybrid.MaxFleetKeyLimits {
			full += fmt.Sprintf("%d 5/h key-%d\n", i, i)
		}
		b.Mini.Set(fleetNames.KeyLimits("api"), full)
		if err := h.SetFleetKeyLimit(t.Context(), "api", "one more", still(5)); !errors.Is(err, hybrid.ErrFleetKeysFull) {
			t.Errorf("one more: %v", err)
		}
		if all, err := h.FleetKeyLimits(t.Context(), "api"); err != nil || len(all) != hybrid.MaxFleetKeyLimits {
			t.Errorf("%d keys, %v", len(all), err)
		}
	})
}

// TestFleetKeyLimitOfCallsInFlight gives a key of a limiter of calls in flight another number of permits.
func TestFleetKeyLimitOfCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		fleet := callFleet(t, b, 2, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{})
		set := func(limit hybridlimit.Limit) {
			t.Helper()
			if err := newHub(t, b.Client(nil), hybrid.HubConfig{Prefix: "t"}).SetFleetKeyLimit(t.Context(), "calls", "k", limit); err != nil {
				t.Fatal(err)
			}
			time.Sleep(heard)
		}
		most := func() (n int) {
			t.Helper()
			for i := range 40 {
				p, res := acquire(t, fleet[i%2], "k", 1)
				if res.Allowed {
					n++
					defer p.Release()
				}
				time.Sleep(20 * time.Millisecond)
			}
			return n
		}
		set(hybridlimit.Concurrent(9))
		if n := most(); n != 9 {
			t.Errorf("%d calls run, want 9", n)
		}
		time.Sleep(2 * time.Second)
		if i, err := fleet[0].Inspect(t.Context(), "k"); err != nil || i.LimitFrom != "fleet_key" || i.Limit != hybridlimit.Concurrent(9) {
			t.Errorf("%+v, %v", i, err)
		}
		set(hybridlimit.Limit{})
		if n := most(); n != 4 {
			t.Errorf("taken back: %d calls run, want 4", n)
		}
	})
}
