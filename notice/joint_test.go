package notice_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
	"github.com/hybridlimit/hybridlimit/otellimit"
	"github.com/hybridlimit/hybridlimit/spend"
)

// trio are three limiters of one kind: two with windows, and a bucket.
type trio struct{ day, hour, bucket hybridlimit.Limiter }

var trioLimits = map[string]hybridlimit.Limit{
	"day": hybridlimit.FixedWindow(10, 4*time.Minute), "hour": hybridlimit.FixedWindow(5, 2*time.Minute), "bucket": hybridlimit.TokenBucket(1000, time.Second, 1000),
}

// trios make the limiters of each package.
var trios = map[string]func(t *testing.T) trio{
	"local": func(t *testing.T) trio {
		of := func(name string) hybridlimit.Limiter { return newLocal(t, trioLimits[name], local.Config{Name: name}) }
		return trio{of("day"), of("hour"), of("bucket")}
	},
	"global": func(t *testing.T) trio {
		rdb := redistest.NewBubble(t).Client(nil)
		of := func(name string) hybridlimit.Limiter {
			l, err := global.New(rdb, trioLimits[name], global.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return l
		}
		return trio{of("day"), of("hour"), of("bucket")}
	},
	"hybrid": func(t *testing.T) trio {
		h, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		of := func(name string) hybridlimit.Limiter {
			l, err := h.Limiter(trioLimits[name], hybrid.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		return trio{of("day"), of("hour"), of("bucket")}
	},
}

// TestAllowAll asks limiters together, in each order, and wrapped in each way: by this package, by otellimit, by both,
// and not at all. The crossings are those of the day and the hour.
func TestAllowAll(t *testing.T) {
	for kind, limiters := range trios {
		for _, shape := range []string{"bare bucket", "metrics around the bucket", "metrics inside", "metrics outside", "twice"} {
			t.Run(kind+"/"+shape, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var r told
					recorder, err := otellimit.NewRecorder(otellimit.Config{MeterProvider: noop.NewMeterProvider()})
					if err != nil {
						t.Fatal(err)
					}
					counted := func(name string, l hybridlimit.Limiter) hybridlimit.Limiter {
						l, err := recorder.Wrap(name, l)
						if err != nil {
							t.Fatal(err)
						}
						return l
					}
					ls := limiters(t)
					cfg := notice.Config{At: []float64{1}, On: r.on}
					switch shape {
					case "metrics around the bucket":
						ls.bucket = counted("bucket", ls.bucket)
					case "metrics inside":
						ls.hour = counted("hour", ls.hour)
					}
					var day, hour hybridlimit.Limiter = watch(t, ls.day, cfg), watch(t, ls.hour, cfg)
					switch shape {
					case "metrics outside":
						day = counted("day", day)
					case "twice":
						hour = watch(t, hour, notice.Config{On: func(notice.Crossing) {}})
					}
					time.Sleep(3 * time.Second)
					border(4 * time.Minute)
					orders := [][]hybridlimit.Limiter{{day, hour, ls.bucket}, {ls.bucket, hour, day}, {hour, ls.bucket, day}, {day, ls.bucket, hour}}
					for i := range 5 {
						order := orders[i%len(orders)]
						for _, one := range order {
							if j := order[0].(adapter.Joint); i != 1 && !j.Joins(one) {
								t.Errorf("%T does not join %T", j, one)
							}
						}
						asks := make([]hybridlimit.Ask, len(order))
						for j, l := range order {
							asks[j] = hybridlimit.Ask{Limiter: l, Key: "ann", N: 1}
						}
						res, err := hybridlimit.AllowAll(t.Context(), asks...)
						if err != nil || !res.Allowed || res.Policy != "hour" {
							t.Errorf("call %d: %+v, %v", i, res, err)
						}
						for j, a := range asks {
							if !a.Result.Allowed || a.Result.Source == hybridlimit.SourceUnknown || a.Taken == (hybridlimit.Taken{}) {
								t.Errorf("call %d: ask %d has %+v", i, j, a.Result)
							}
						}
					}
					res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: ls.bucket, Key: "ann", N: 1}, hybridlimit.Ask{Limiter: hour, Key: "ann", N: 1})
					if err != nil || res.Allowed || res.Policy != "hour" {
						t.Errorf("denied: %+v, %v", res, err)
					}
					time.Sleep(10 * time.Second)
					if got := r.take(); len(got) != 1 || got[0].Limiter != "hour" || got[0].Used != 5 {
						t.Errorf("%+v", got)
					}
					s, res, err := spend.Begin(t.Context(), hybridlimit.Ask{Limiter: day, Key: "ann", N: 1})
					if err != nil || !res.Allowed {
						t.Fatal(res, err)
					}
					if _, err := s.Use(t.Context(), 0, 5); err != nil { // four more than Begin took
						t.Error(err)
					}
					if err := s.Settle(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * time.Second)
					if got := r.take(); len(got) != 1 || got[0].Limiter != "day" || got[0].Used != 10 {
						t.Errorf("after a settled call: %+v", got)
					}
				})
			})
		}
	}
}

// TestAllowAllBesidePermits asks a limit of calls in flight with a bare bucket and a watched window, in each order.
func TestAllowAllBesidePermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		running, err := local.NewConcurrency(hybridlimit.Concurrent(5), local.ConcurrencyConfig{Name: "running"})
		if err != nil {
			t.Fatal(err)
		}
		bucket := newLocal(t, hybridlimit.PerSecond(100), local.Config{Name: "bucket"})
		window := watch(t, newLocal(t, hybridlimit.FixedWindow(2, time.Hour), local.Config{Name: "window"}), notice.Config{At: []float64{1}, On: r.on})
		border(time.Hour)
		for i, order := range [][]hybridlimit.Limiter{{running, bucket, window}, {window, bucket, running}, {bucket, window, running}} {
			asks := make([]hybridlimit.Ask, len(order))
			for j, l := range order {
				asks[j] = hybridlimit.Ask{Limiter: l, Key: "ann", N: 1}
			}
			res, err := hybridlimit.AllowAll(t.Context(), asks...)
			if err != nil || res.Allowed != (i < 2) {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
			for j := range asks {
				asks[j].Permit.Release()
			}
		}
		synctest.Wait()
		if got := r.take(); len(got) != 1 || running.Running("ann") != 0 {
			t.Errorf("%+v, %d running", got, running.Running("ann"))
		}
	})
}

// TestAllowAllOfStrangers has errors, and takes nothing.
func TestAllowAllOfStrangers(t *testing.T) {
	a := newLocal(t, hybridlimit.FixedWindow(5, time.Hour), local.Config{Name: "a"})
	var r told
	n := watch(t, a, notice.Config{On: r.on})
	alone := watch(t, unjoined{a}, notice.Config{On: r.on})
	ctx := t.Context()
	for _, other := range []hybridlimit.Limiter{nil, (*notice.Limiter)(nil), (*local.Limiter)(nil), unjoined{a}, alone} {
		for _, asks := range [][]hybridlimit.Ask{
			{{Limiter: n, Key: "k", N: 1}, {Limiter: other, Key: "k", N: 1}},
			{{Limiter: other, Key: "k", N: 1}, {Limiter: n, Key: "k", N: 1}},
		} {
			if _, err := hybridlimit.AllowAll(ctx, asks...); !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "must") {
				t.Errorf("%T beside a watched limiter: %v", other, err)
			}
		}
		if n.Joins(other) {
			t.Errorf("joins %T", other)
		}
	}
	if alone.Joins(n) || alone.Joins(alone) {
		t.Error("a limiter that is not Joint joins")
	}
	if res, err := a.Peek(ctx, "k"); err != nil || res.Remaining != 5 {
		t.Errorf("%+v, %v", res, err)
	}
	asks := []hybridlimit.Ask{{Limiter: alone, Key: "k", N: 2}}
	if res, err := hybridlimit.AllowAll(ctx, asks...); err != nil || !res.Allowed || asks[0].Result != res || res.Remaining != 3 {
		t.Errorf("a single ask: %+v, %v", res, err)
	}
}

// unjoined is a limiter without AllowJoint.
type unjoined struct{ *local.Limiter }

func (unjoined) AllowJoint() {}
func (unjoined) ForClass()   {}

// TestInterfaces has the interfaces of the wrapped limiter.
func TestInterfaces(t *testing.T) {
	l := newLocal(t, hybridlimit.FixedWindow(5, time.Hour), local.Config{Name: "a"})
	var r told
	n := watch(t, l, notice.Config{On: r.on})
	if n.Unwrap() != hybridlimit.Limiter(l) || n.Name() != "a" || n.Policy("k").Limit.Rate != 5 || n.ForClass("x") != hybridlimit.Limiter(n) {
		t.Error("the wrapper differs from its limiter")
	}
	ask(t, n, "k", 1)
	if res, err := n.Peek(t.Context(), "k"); err != nil || res.Remaining != 4 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := n.Allow(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
		t.Error(err)
	}
}
