package hybrid

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// hourly returns a limit that refills nothing while a test runs.
func hourly(burst int64) hybridlimit.Limit { return hybridlimit.TokenBucket(1, time.Hour, burst) }

// changing is a limiter in virtual time, whose limits a test changes.
func changing(t *testing.T, limit hybridlimit.Limit, cfg Config) (*Hub, *Limiter, *logLines) {
	t.Helper()
	b, lines := redistest.NewBubble(t), new(logLines)
	h, err := NewHub(b.Client(nil), HubConfig{Logger: lines.logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	cfg.Name = "api"
	l, err := h.Limiter(limit, cfg)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	return h, l, lines
}

// TestOrderOfLimits checks that the limit in force is the one of the strongest source, in every combination of sources,
// whatever the order in which they are set.
func TestOrderOfLimits(t *testing.T) {
	const settings, fleet, process = 1, 2, 4
	for have := range 8 {
		for _, order := range [][]int{{settings, fleet, process}, {process, fleet, settings}, {fleet, process, settings}} {
			t.Run(fmt.Sprint(have, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, l, _ := changing(t, hourly(10), Config{})
					at := time.Now().UnixMicro()
					set := func(source int, on bool) {
						at++
						switch {
						case source == settings && on:
							okSettings(t, h, map[string]Settings{"api": {Limit: hourly(20)}})
						case source == settings:
							okSettings(t, h, nil)
						case source == fleet && on:
							l.control.HearLimit(wire.FleetLimit{Text: "1/h burst 30", At: at}, at)
						case source == fleet:
							l.control.HearLimit(wire.FleetLimit{Text: "", At: at}, at)
						case on:
							if err := l.SetLimit(hourly(40)); err != nil {
								t.Error(err)
							}
						default:
							if err := l.ClearLimit(); err != nil {
								t.Error(err)
							}
						}
					}
					for _, source := range order { // all of them first; below, the others are taken back
						set(source, true)
					}
					for _, source := range order {
						set(source, have&source != 0)
					}
					want, from := int64(10), LimitFromConfig
					switch {
					case have&process != 0:
						want, from = 40, LimitFromProcess
					case have&fleet != 0:
						want, from = 30, LimitFromFleet
					case have&settings != 0:
						want, from = 20, LimitFromSettings
					}
					s := l.LimitState()
					if s.InForce != hourly(want) || s.Source != from || s.Configured != hourly(10) || l.Limit() != s.InForce {
						t.Errorf("%+v, want %d by %v", s, want, from)
					}
					if i, err := l.Inspect(t.Context(), "k"); err != nil || i.Limit != hourly(want) || i.LimitFrom != from.String() || i.Configured != hourly(10) {
						t.Errorf("%+v, %v", i, err)
					}
					if res, err := l.Allow(t.Context(), "k"); err != nil || res.Limit != want || !res.Allowed {
						t.Errorf("%+v, %v", res, err)
					}
				})
			})
		}
	}
}

func okSettings(t *testing.T, h *Hub, all map[string]Settings) {
	t.Helper()
	if err := h.SetSettings(all); err != nil {
		t.Error(err)
	}
}

// TestReloadsChangeNothing checks that settings and a limit of the fleet that are in force already change no level of a
// key, and that no decision leaves the fast path for them.
func TestReloadsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l, lines := changing(t, hybridlimit.PerSecond(1000), Config{})
		settings := func() map[string]Settings {
			return map[string]Settings{"api": {Limit: hybridlimit.PerSecond(2000), Keys: map[string]hybridlimit.Limit{"own": hybridlimit.PerSecond(7)}}}
		}
		okSettings(t, h, settings())
		at := time.Now().UnixMicro()
		l.control.HearLimit(wire.FleetLimit{Text: "1500/s", At: at}, at)
		for range 100 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // a sync may be on its way
		before, err := l.Inspect(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		plan, epoch, said := l.control.Plan(), l.clock.Epoch(), lines.count()
		for i := range 10_000 {
			okSettings(t, h, settings())
			l.control.HearLimit(wire.FleetLimit{Text: "1500/s", At: at + int64(i)}, at+int64(i))
		}
		if l.control.Plan() != plan || l.clock.Epoch() != epoch || lines.count() != said {
			t.Errorf("the plan or the budgets have changed, or %d lines were logged", lines.count()-said)
		}
		after, err := l.Inspect(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if after != before {
			t.Errorf("before: %+v\nafter: %+v", before, after)
		}
	})
}

// TestCanaryIsByKey checks that a limit for a part of the keys is that of these keys only, that the part has its size,
// that a larger part has all keys of a smaller one, and that keys come back to the limiter's limit.
func TestCanaryIsByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l, _ := changing(t, hourly(100), Config{MaxKeys: 5000})
		at := time.Now().UnixMicro()
		in := func(part float64, want hybridlimit.Limit) map[string]bool {
			at++
			l.control.HearLimit(wire.FleetLimit{Text: control.FleetLimit{Limit: hourly(50), Part: part}.Text(), At: at}, at)
			keys := map[string]bool{}
			for i := range 2000 {
				key := fmt.Sprint("key-", i)
				i, err := l.Inspect(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case i.Limit == hourly(50) && i.LimitFrom == "fleet":
					keys[key] = true
				case i.Limit != want || i.LimitFrom == "fleet":
					t.Fatalf("%s: %+v", key, i)
				}
				if res, err := l.Allow(t.Context(), key); err != nil || res.Limit != i.Limit.Burst {
					t.Fatalf("%s: %+v, %v; Inspect: %v", key, res, err, i.Limit)
				}
			}
			return keys
		}
		some := in(0.1, hourly(100))
		if n := len(some); n < 140 || n > 260 {
			t.Errorf("%d of 2000 keys are in a tenth", n)
		}
		more := in(0.3, hourly(100))
		for key := range some {
			if !more[key] {
				t.Errorf("%s is in a tenth, and not in three tenths", key)
			}
		}
		okSettings(t, h, map[string]Settings{"api": {Limit: hourly(80)}})
		if again := in(0.1, hourly(80)); len(again) != len(some) {
			t.Errorf("%d keys, and %d before", len(again), len(some))
		}
		if err := l.SetLimit(hourly(70)); err != nil {
			t.Fatal(err)
		}
		if own := in(0.1, hourly(70)); len(own) != 0 {
			t.Errorf("%d keys decide by the fleet's limit, although the process has its own", len(own))
		}
	})
}

// TestCanaryNeverRefills checks that a key that goes to the canary's limit and comes back never gets more than by the
// larger of the limits, for random times of the changes.
func TestCanaryNeverRefills(t *testing.T) {
	const rate, burst = 10, 20
	synctest.Test(t, func(t *testing.T) {
		_, l, _ := changing(t, hybridlimit.TokenBucket(1, time.Second, burst), Config{Mode: ModeStrict, MaxWait: time.Second})
		at, began, admitted := time.Now().UnixMicro(), time.Now(), int64(0)
		for i := range 400 {
			at++
			text := control.FleetLimit{Limit: hybridlimit.TokenBucket(rate, time.Second, burst), Part: 0.9999}.Text()
			if i%2 == 1 {
				text = ""
			}
			l.control.HearLimit(wire.FleetLimit{Text: text, At: at}, at)
			for range 5 {
				res, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				admitted += res.Granted
			}
			time.Sleep(time.Duration(1+i%7*53) * time.Millisecond)
		}
		passed := time.Since(began).Seconds()
		// Half of the time has the larger rate. 1.1 covers the uneven halves.
		if most := burst + 1.1*(rate+1)/2*passed; float64(admitted) > most {
			t.Errorf("%d units in %.1f s, want at most %.0f", admitted, passed, most)
		}
	})
}

// TestFleetLimitText checks that a limit of the fleet survives its text, and which texts are refused.
func TestFleetLimitText(t *testing.T) {
	for _, f := range []control.FleetLimit{
		{},
		{Limit: hourly(5)},
		{Limit: hybridlimit.SlidingWindow(7, time.Minute), Part: 0.0001},
		{Limit: hybridlimit.Blocked(), Part: 0.25},
		{Limit: hybridlimit.Unlimited()},
		{Limit: hybridlimit.PerSecond(3), Part: 0.1234},
	} {
		if got, err := control.ParseFleetLimit(f.Text()); err != nil || got != f {
			t.Errorf("%q: %+v, %v; want %+v", f.Text(), got, err, f)
		}
	}
	for _, text := range []string{"x", "0.00001 1/s", "-1 1/s", "NaN 1/s", "2 1/s", "0 1/s burst", "0.5", "0.5 ", " 1/s x", "0/s", strings.Repeat("9", 300)} {
		if f, err := control.ParseFleetLimit(text); err == nil {
			t.Errorf("%q is read as %+v", text, f)
		}
	}
	for _, part := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1), 0.00005, 0.12345} {
		if bad := (control.FleetLimit{Limit: hourly(1), Part: part}).Violations(); len(bad) != 1 {
			t.Errorf("Part %v: %v", part, bad)
		}
	}
}

// TestOddFleetLimit checks that a limit of the fleet that this process cannot apply leaves the limit as it was without
// the fleet, and is logged.
func TestOddFleetLimit(t *testing.T) {
	for _, text := range []string{"5 per fortnight", "fixed 5/s", "\x00", "0/s"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l, lines := changing(t, hourly(10), Config{})
				at := time.Now().UnixMicro()
				l.control.HearLimit(wire.FleetLimit{Text: "1/h burst 30", At: at}, at)
				for range 3 {
					l.control.HearLimit(wire.FleetLimit{Text: text, At: at + 1}, at+1)
				}
				if s := l.LimitState(); s.InForce != hourly(10) || s.Source != LimitFromConfig || s.Fleet.Limit != (hybridlimit.Limit{}) {
					t.Errorf("%+v", s)
				}
				if n := lines.of(tell.MsgOddLimit); n != 1 {
					t.Errorf("%d lines", n)
				}
				if told := l.control.HeardLimit(); told != (wire.FleetLimit{Text: text, At: at + 1}) {
					t.Errorf("the process would tell Redis %+v", told)
				}
				l.control.HearLimit(wire.FleetLimit{Text: "1/h burst 40", At: at + 2}, at+2)
				if s := l.LimitState(); s.InForce != hourly(40) {
					t.Errorf("the next limit: %+v", s)
				}
			})
		})
	}
}

// logLines keeps the lines of a log.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write implements io.Writer. A text handler writes one line at a time.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

func (l *logLines) count() int { return l.of("") }

// of returns the number of lines with a text.
func (l *logLines) of(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
