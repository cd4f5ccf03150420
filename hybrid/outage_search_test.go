//go:build search

package hybrid_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// outage is a way to take Redis away and to bring it back.
type outage struct {
	name   string
	down   func(*redistest.Server) error
	up     func(*redistest.Server) error
	intact bool // Redis keeps its data
}

var outages = []outage{
	{"SIGKILL", func(s *redistest.Server) error { s.Kill(); return nil }, (*redistest.Server).Restart, false},
	{"SIGSTOP", (*redistest.Server).Pause, (*redistest.Server).Resume, true},
}

// TestOutageUnderLoad takes Redis away from a fleet and gives it back. It
// checks latencies and must have the machine to itself, so it is not parallel.
func TestOutageUnderLoad(t *testing.T) {
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) { takeRedisAway(t, o) })
	}
}

func takeRedisAway(t *testing.T, o outage) {
	const maxWait, slack = 20 * time.Millisecond, 20 * time.Millisecond
	const perSecond = 225 // calls for each key and process
	// The calls ask hot for less than its limit, so there is room for leases. They ask
	// tight for about five times its limit. Neither key is full again while Redis is
	// stopped, so neither is forgotten.
	hot := hybridlimit.TokenBucket(1000, time.Second, 8000)
	tight := hybridlimit.TokenBucket(200, time.Second, 2000)
	log := newCapture()
	srv := redistest.New(t)
	ls := makeFleet(t, srv, tight, hybrid.Config{
		MaxWait: maxWait,
		LimitFor: func(key string) hybridlimit.Limit {
			if key == "hot" {
				return hot
			}
			return tight
		},
		Hub: hybrid.HubConfig{Logger: slog.New(log), FleetSize: processes},
	})
	for range 4 {
		ask(t, ls[0], "hot", 1000)
		ask(t, ls[0], "tight", 450)
	}

	c, j := newCanary(t), &journal{}
	var stops []func()
	for i, l := range ls {
		for _, key := range []string{"hot", "tight"} {
			stop := paced(perSecond, 2, func() {
				began := time.Now()
				res, err := l.Allow(context.Background(), key)
				j.add(decision{i, key, began, time.Now(), res, err})
			})
			t.Cleanup(stop)
			stops = append(stops, stop)
		}
	}
	breakers := func(want breaker.State) func() bool {
		return func() bool {
			for _, l := range ls {
				if l.Stats().Breaker != want {
					return false
				}
			}
			return true
		}
	}
	<-time.After(500 * time.Millisecond)

	down := time.Now()
	if err := o.down(srv); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "all breakers open", breakers(breaker.Open))
	open := time.Now()
	<-time.After(1500 * time.Millisecond)
	up := time.Now()
	if err := o.up(srv); err != nil {
		t.Fatal(err)
	}
	// Restart returns when Redis answers, and Resume returns at once. From here on Redis is up.
	well := time.Now()
	redistest.Eventually(t, 10*time.Second, "all breakers closed", breakers(breaker.Closed))
	closed := time.Now()
	// The callers show how busy the machine is: a busy machine makes fewer calls in a second, and its timers and its Redis are
	// late by the same factor. busy is that factor.
	const calls = 2 * processes * 2 * perSecond
	redistest.Eventually(t, time.Minute, "the calls of two seconds", func() bool {
		return time.Since(well) >= 2*time.Second && len(j.between(well, time.Now())) >= calls*9/10
	})
	busy := max(1, time.Since(well).Seconds()/2)
	for _, stop := range stops {
		stop()
	}

	j.punctual(t, c, maxWait+slack)
	inside := j.between(open, up)
	for _, d := range inside {
		if s := d.res.Source; s != hybridlimit.SourceFallback && s != hybridlimit.SourceLease {
			t.Errorf("without Redis: %+v", d.res)
			break
		}
	}
	t.Logf("breakers opened after %v and closed after %v; p50 %v, p99 %v of %d decisions in between",
		open.Sub(down), closed.Sub(well), quantile(inside, 0.5), quantile(inside, 0.99), len(inside))
	backWithin(t, j, len(ls), well, time.Duration(2e9*busy))

	// All fallback shares together admit at most the limit. They start from the units that
	// were left: at most a tenth of the burst.
	var first time.Time
	var units int64
	for _, d := range j.between(down, time.Now()) {
		if d.key == "tight" && d.res.Source == hybridlimit.SourceFallback && d.res.Allowed {
			if first.IsZero() {
				first = d.begin
			}
			units++
		}
	}
	most := float64(tight.BurstSize())/10 + 200*time.Since(first).Seconds()
	if units == 0 || float64(units) > most {
		t.Errorf("fallbacks admitted %d units, want 1 to %.0f", units, most)
	}
	t.Logf("fallbacks admitted %d units of the tight key, at most %.0f are allowed", units, most)

	// Each process logs one line per change, whatever happened in between.
	var broken, mended int
	for _, line := range log.all() {
		switch {
		case len(line) >= len(lineBroken) && line[:len(lineBroken)] == lineBroken:
			broken++
		case len(line) >= len(lineMended) && line[:len(lineMended)] == lineMended:
			mended++
		case !o.intact && strings.HasPrefix(line, lineLost):
		default:
			t.Errorf("logged %q", line)
		}
	}
	if broken < len(ls) || mended < len(ls) || busy < 1.5 && broken+mended > 2*len(ls) { // a starved Redis may seem to go away once more
		t.Errorf("%d lines of a failure and %d of a recovery, want %d each:\n%q", broken, mended, len(ls), log.all())
	}

	shutdown(t, ls...)
	var all []hybrid.Stats
	for _, l := range ls {
		all = append(all, l.Stats())
	}
	// During a longer stop the state fills up and expires. Redis then counts from 0.
	if got := debited(t, srv.Client(t), "api", "hot", "tight"); o.intact && well.Sub(down) < 4*time.Second && !explained(t, got, all...) {
		t.Errorf("Redis debited %d, and the fleet does not know of them: %+v", got, all)
	}
}

// backWithin checks that each limiter decides by the shared limit again, soon
// after Redis is back, and by a lease where demand supports one.
func backWithin(t *testing.T, j *journal, limiters int, well time.Time, most time.Duration) {
	t.Helper()
	for i := range limiters {
		var lease, shared time.Duration
		for _, d := range j.between(well, time.Now()) {
			if d.limiter != i {
				continue
			}
			switch d.res.Source {
			case hybridlimit.SourceLease:
				if lease == 0 && d.key == "hot" {
					lease = d.end.Sub(well)
				}
			case hybridlimit.SourceCredit, hybridlimit.SourceRedis, hybridlimit.SourceDenyCache:
				if shared == 0 {
					shared = d.end.Sub(well)
				}
			}
		}
		if shared == 0 || shared > most || lease == 0 || lease > most {
			t.Errorf("limiter %d: back on the shared limit after %v, on a lease after %v; want both within %v", i, shared, lease, most)
		}
		t.Logf("limiter %d: back on the shared limit after %v, on a lease after %v", i, shared, lease)
	}
}
