package conformance_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
)

// verbs has the methods that all three limiters have.
type verbs interface {
	hybridlimit.Limiter
	AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error)
	Peek(ctx context.Context, key string) (hybridlimit.Result, error)
	Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	Reset(ctx context.Context, key string) error
	Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error)
	Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	SetLimit(limit hybridlimit.Limit) error
}

// columns has the limits of the table's columns: five units a minute.
var columns = [][]hybridlimit.Limit{
	{hybridlimit.TokenBucket(5, time.Minute, 5), hybridlimit.LeakyBucket(5, time.Minute, 5)},
	{hybridlimit.LeakyQueue(5, time.Minute, 5)},
	{hybridlimit.FixedWindow(5, time.Minute), hybridlimit.SlidingWindow(5, time.Minute)},
	{hybridlimit.SlidingLog(5, time.Minute)},
}

// asker calls a limiter, and fails the test on an error.
type asker struct {
	t *testing.T
	verbs
	limit hybridlimit.Limit
}

func (a asker) must(res hybridlimit.Result, err error) hybridlimit.Result {
	a.t.Helper()
	if err != nil {
		a.t.Errorf("%v: %v", a.limit, err)
	}
	return res
}

func (a asker) allow(key string, n int64) hybridlimit.Result {
	a.t.Helper()
	return a.must(a.AllowN(a.t.Context(), key, n))
}

// left takes and counts the units that are available at once.
func (a asker) left(key string) (n int64) {
	a.t.Helper()
	for a.allow(key, 1).Allowed {
		n++
	}
	return n
}

// atMost takes and counts the available units in calls for nine: hybrid does not give
// all units in one call.
func (a asker) atMost(key string) (n int64) {
	a.t.Helper()
	for {
		res := a.must(a.AllowAtMost(a.t.Context(), key, 9))
		if n += res.Granted; !res.Allowed {
			return n
		}
	}
}

// probes report whether the feature of a row of the table works.
var probes = map[string]func(a asker) bool{
	"`AllowN`, `AllowAtMost`, `AllowLimit`, `LimitFor`": func(a asker) bool {
		more := a.limit
		more.Rate, more.Burst = 7, 0
		return a.allow("n", 3).Allowed && !a.allow("n", 3).Allowed &&
			a.atMost("most") == 5 &&
			a.must(a.AllowLimit(a.t.Context(), "limit", 7, more)).Allowed &&
			a.allow("seven", 7).Allowed // by the limit of LimitFor
	},
	"`Peek`, `Reset`, `Refund`": func(a asker) bool {
		a.allow("k", 4)
		ctx := a.t.Context()
		if res := a.must(a.Peek(ctx, "k")); !res.Allowed || res.Remaining != 1 || res.Granted != 0 {
			return false
		}
		a.must(a.Refund(ctx, "k", 2))
		if a.left("k") != 3 {
			return false
		}
		return a.Reset(ctx, "k") == nil && a.left("k") == 5
	},
	"`Charge`, into debt": func(a asker) bool {
		a.must(a.Charge(a.t.Context(), "k", 7))
		a.must(a.Refund(a.t.Context(), "k", 3))
		return a.left("k") == 1
	},
	"`SetLimit`, to the same algorithm": func(a asker) bool {
		for _, column := range columns {
			for _, other := range column {
				if other.Algorithm != a.limit.Algorithm && !errors.Is(a.SetLimit(other), hybridlimit.ErrInvalid) {
					a.t.Errorf("%v took %v", a.limit, other)
				}
			}
		}
		less := a.limit
		less.Rate, less.Burst = 2, 0
		return a.SetLimit(less) == nil && a.left("k") == 2
	},
	"an admission has a `Delay`": func(a asker) bool {
		a.allow("k", 1)
		return a.allow("k", 1).Delay > 0
	},
	"`Reserve` books ahead": func(a asker) bool { // takes a unit that is not there yet
		a.left("k")
		r, err := a.Reserve(a.t.Context(), "k", 1)
		if err != nil {
			a.t.Errorf("%v: %v", a.limit, err)
		}
		return r.Allowed && r.Delay > 0
	},
	"`Wait`": func(a asker) bool {
		a.left("k")
		began := time.Now()
		res := a.must(a.Wait(a.t.Context(), "k", 1))
		return res.Allowed && res.Delay == 0 && time.Since(began) > time.Second
	},
	"in `hybrid`: decided in memory": func(a asker) bool {
		l := a.verbs.(*hybrid.Limiter)
		many := a.limit
		many.Rate, many.Burst = 2000, 0 // at 100 calls a second, a queue fills too
		if err := l.SetLimit(many); err != nil {
			a.t.Error(err)
		}
		time.Sleep(3 * time.Second) // the fleet is counted
		for range 50 {
			if s := a.allow("k", 1).Source; s == hybridlimit.SourceLease || s == hybridlimit.SourceCredit {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	},
	"in `hybrid`: `hybridlimit.AllowAll`": func(a asker) bool {
		l := a.verbs.(*hybrid.Limiter)
		_, err := hybridlimit.AllowAll(a.t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: 1})
		if err != nil && !errors.Is(err, hybridlimit.ErrUnsupported) {
			a.t.Error(err)
		}
		return err == nil
	},
}

// in reports whether a row of the table applies to a limiter. A row names its limiters,
// or none for all.
func in(row, limiter string) bool {
	_, names, some := strings.Cut(row, "in `")
	return !some || strings.Contains("`"+names, "`"+limiter+"`")
}

// TestVerbsInTheDocumentation compares the table of verbs and algorithms in
// docs/limits.md with the limiters.
func TestVerbsInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Which verbs make sense\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		probe := probes[strings.TrimSpace(cells[0])]
		if probe == nil {
			if strings.ContainsAny(line, "●") {
				t.Errorf("the row %q has no probe", cells[0])
			}
			continue
		}
		rows++
		for i, cell := range cells[1:] {
			for _, limit := range columns[i] {
				t.Run(cells[0]+"/"+limit.Algorithm.String(), func(t *testing.T) { tryOnAll(t, limit, probe, cell == "●", cells[0]) })
			}
		}
	}
	if rows != len(probes) {
		t.Errorf("the table has %d rows with a probe, want %d", rows, len(probes))
	}
}

// tryOnAll runs a probe on each limiter of a row, in virtual time.
func tryOnAll(t *testing.T, limit hybridlimit.Limit, probe func(asker) bool, want bool, row string) {
	var limitFor func(key string) hybridlimit.Limit
	if strings.Contains(row, "LimitFor") {
		limitFor = func(key string) hybridlimit.Limit {
			l := limit
			if key == "seven" {
				l.Rate, l.Burst = 7, 0
			}
			return l
		}
	}
	for name, open := range map[string]func(t *testing.T) (verbs, error){
		"local": func(*testing.T) (verbs, error) { return local.New(limit, local.Config{LimitFor: limitFor}) },
		"global": func(t *testing.T) (verbs, error) {
			return global.New(redistest.NewBubble(t).Client(nil), limit, global.Config{Name: "api", LimitFor: limitFor})
		},
		"hybrid": func(t *testing.T) (verbs, error) {
			return hybrid.New(redistest.NewBubble(t).Client(nil), limit, hybrid.Config{Name: "api", LimitFor: limitFor, Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)}})
		},
	} {
		if !in(row, name) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			l, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := l.(interface{ Close() error }); ok {
				defer c.Close()
			}
			if got := probe(asker{t, l, limit}); got != want {
				t.Errorf("%s, %v: %t, the table says %t", name, limit, got, want)
			}
		})
	}
}
