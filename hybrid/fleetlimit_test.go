package hybrid_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// heard is the time within which all processes hear of a limit of the fleet: two heartbeats.
const heard = 2 * time.Second

func limitFleet(t *testing.T, l *hybrid.Limiter, f hybrid.FleetLimit) {
	t.Helper()
	if err := l.SetFleetLimit(t.Context(), f); err != nil {
		t.Error(err)
	}
}

// TestFleetLimit checks that the fleet's limit reaches all processes within two heartbeats, that an idle fleet sends no
// more messages for it, that a process's own limit wins, and that it can be taken back.
func TestFleetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var ls []*hybrid.Limiter
		for range 3 {
			ls = append(ls, newLimiter(t, b.Client(nil), still(100), hybrid.Config{}))
		}
		all := func(when string, want ...int64) {
			t.Helper()
			for i, l := range ls {
				burst := want[min(i, len(want)-1)]
				if l.Limit() != still(burst) {
					t.Errorf("%s: process %d has %v, want %d", when, i, l.Limit(), burst)
				}
				if res := ask(t, l, "k", 1); res.Limit != burst {
					t.Errorf("%s: process %d decides by %d, want %d", when, i, res.Limit, burst)
				}
			}
		}
		time.Sleep(2500 * time.Millisecond) // between two heartbeats
		messages := ls[1].Hub().Stats().Messages
		time.Sleep(10 * time.Second)
		idle := ls[1].Hub().Stats().Messages - messages

		limitFleet(t, ls[0], hybrid.FleetLimit{Limit: still(200)})
		if s := ls[0].LimitState(); s.InForce != still(200) || s.Source != hybrid.LimitFromFleet || s.Fleet.At.IsZero() {
			t.Errorf("the process that set it: %+v", s)
		}
		time.Sleep(heard)
		all("set", 200)
		time.Sleep(3 * time.Second)
		messages = ls[1].Hub().Stats().Messages
		time.Sleep(10 * time.Second)
		if n := ls[1].Hub().Stats().Messages - messages; n != idle {
			t.Errorf("%d messages in 10 s with a limit of the fleet, %d without", n, idle)
		}

		if err := ls[1].SetLimit(still(50)); err != nil {
			t.Fatal(err)
		}
		all("own limit", 200, 50, 200)
		ls = append(ls, newLimiter(t, b.Client(nil), still(100), hybrid.Config{}))
		time.Sleep(100 * time.Millisecond)
		all("a new process", 200, 50, 200, 200)
		if err := ls[1].ClearLimit(); err != nil {
			t.Fatal(err)
		}
		all("cleared", 200)
		limitFleet(t, ls[3], hybrid.FleetLimit{})
		time.Sleep(heard)
		all("taken back", 100)
		for _, l := range ls {
			balance(t, l.Stats())
		}
	})
}

// TestFleetLimitOutlivesRedis checks that the fleet's limit outlives an outage of Redis and the loss of its state, also
// right after it was set, and that it expires a day after the last process of the fleet has gone.
func TestFleetLimitOutlivesRedis(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				ls := []*hybrid.Limiter{
					newLimiter(t, b.Client(nil), still(100), hybrid.Config{}), newLimiter(t, b.Client(nil), still(100), hybrid.Config{}),
				}
				key := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}.FleetLimit("api")
				time.Sleep(2 * time.Second)
				limitFleet(t, ls[0], hybrid.FleetLimit{Limit: still(200)})
				time.Sleep(after)
				b.Mini.FlushAll()
				time.Sleep(5 * time.Second)
				b.Kill()
				time.Sleep(5 * time.Second)
				b.Restart()
				time.Sleep(5 * time.Second)
				for i, l := range ls {
					if l.Limit() != still(200) {
						t.Errorf("process %d has %v", i, l.Limit())
					}
				}
				if ttl := b.Mini.TTL(key); ttl < 23*time.Hour || ttl > 24*time.Hour {
					t.Errorf("TTL of the restored limit = %v, want 23 h to 24 h", ttl)
				}
				shutdown(t, ls...)
				time.Sleep(24*time.Hour + time.Second)
				if b.Mini.Exists(key) {
					t.Error("the limit of a fleet that is gone stays in Redis")
				}
			})
		})
	}
}

// TestFleetLimitRefuses checks that a limit that cannot be applied changes nothing, here and in Redis.
func TestFleetLimitRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{})
		time.Sleep(2 * time.Second)
		for name, f := range map[string]hybrid.FleetLimit{
			"algorithm": {Limit: hybridlimit.FixedWindow(5, time.Second)},
			"limit":     {Limit: hybridlimit.Limit{Rate: -1}},
			"part":      {Limit: still(5), Part: 1.5},
		} {
			if err := l.SetFleetLimit(t.Context(), f); !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := l.Hub().SetFleetLimit(t.Context(), "a:b", hybrid.FleetLimit{Limit: still(5)}); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("name: %v", err)
		}
		if f, err := l.Hub().FleetLimit(t.Context(), "api"); err != nil || f != (hybrid.FleetLimit{}) {
			t.Errorf("Redis has %+v, %v", f, err)
		}
		b.Kill()
		if err := l.SetFleetLimit(t.Context(), hybrid.FleetLimit{Limit: still(5)}); !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("without Redis: %v", err)
		}
		if l.Limit() != still(100) {
			t.Errorf("the limit is %v", l.Limit())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.SetFleetLimit(t.Context(), hybrid.FleetLimit{Limit: still(5)}); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestFleetLimitByName checks that a hub without the limiter sets and reads the fleet's limit, as an operator's tool does,
// and that the last of two writers wins in all processes.
func TestFleetLimitByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		ls := []*hybrid.Limiter{
			newLimiter(t, b.Client(nil), still(100), hybrid.Config{}), newLimiter(t, b.Client(nil), still(100), hybrid.Config{}),
		}
		tool := newHub(t, b.Client(nil), hybrid.HubConfig{})
		time.Sleep(2 * time.Second)
		for _, f := range []hybrid.FleetLimit{
			{Limit: still(200)}, {Limit: still(300), Part: 0.5}, {Limit: hybridlimit.FixedWindow(9, time.Second)}, {Limit: still(400)}, {},
		} {
			limitFleet(t, ls[0], hybrid.FleetLimit{Limit: still(150)})
			if err := tool.SetFleetLimit(t.Context(), "api", f); err != nil {
				t.Fatal(err)
			}
			got, err := tool.FleetLimit(t.Context(), "api")
			if err != nil || got.Limit != f.Limit || got.Part != f.Part || got.At.IsZero() {
				t.Errorf("%+v, %v; want %+v", got, err, f)
			}
			time.Sleep(heard)
			want := still(100)
			if f.Limit.Algorithm == still(1).Algorithm && f.Limit.Rate > 0 && f.Part == 0 {
				want = f.Limit
			}
			for i, l := range ls {
				if l.Limit() != want {
					t.Errorf("%+v: process %d has %v", f, i, l.Limit())
				}
			}
		}
	})
}
