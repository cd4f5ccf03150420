package circuit_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

// model is the breaker in its simplest form: it keeps every call and counts all calls
// again each time. It shares no code with gobreaker or the breaker.
type model struct {
	cfg      breaker.Config // without zero fields: no defaults
	jitter   time.Duration  // open time of the next opening
	state    breaker.State
	since    time.Time // start of the state, and of the window's steps
	retryAt  time.Time
	row      int
	ended    []ended
	probe    *modelCall
	shortest time.Duration // of a successful call
	changes  []breaker.Change
}

type ended struct {
	step   int64 // the step of the window in which the call began
	failed bool
}

type modelCall struct {
	real  circuit.Call
	gen   int   // the generation in which it began
	step  int64 // the step of the window in which it began
	began time.Time
}

// gen counts the generations: a change of state begins one.
func (m *model) gen() int { return len(m.changes) }

func (m *model) step() int64 { return int64(time.Since(m.since) / (m.cfg.Window / 10)) }

func (m *model) patience() time.Duration { return max(m.cfg.OpenFor, 10*m.cfg.SlowCall) }

func (m *model) enter(s breaker.State, cause error) {
	c := breaker.Change{From: m.state, To: s, Cause: cause, At: time.Now()}
	if s == breaker.Open {
		c.OpenFor = m.jitter
		m.retryAt = time.Now().Add(m.jitter)
	}
	m.changes = append(m.changes, c)
	m.state, m.since, m.row, m.ended, m.probe = s, time.Now(), 0, nil, nil
}

func (m *model) begin() (*modelCall, bool) {
	switch m.state {
	case breaker.Open:
		if m.retryIn() > 0 {
			return nil, false
		}
		m.enter(breaker.HalfOpen, nil)
	case breaker.HalfOpen:
		if m.retryIn() > 0 {
			return nil, false
		}
	}
	c := &modelCall{gen: m.gen(), step: m.step(), began: time.Now()}
	if m.state == breaker.HalfOpen {
		m.probe = c
	}
	return c, true
}

func (m *model) end(c *modelCall, took time.Duration, err error) {
	class := circuit.Classify(err)
	most := m.cfg.SlowCall
	if m.shortest > 0 && m.shortest <= most { // three round trips more
		most += 3 * m.shortest
	}
	switch seen := max(took, 1); {
	case class != circuit.Success:
	case m.shortest == 0 || seen < m.shortest:
		m.shortest = seen
	default:
		m.shortest += (seen - m.shortest) / 1024
	}
	if m.cfg.SlowCall > 0 && took > most && class != circuit.Failure {
		class, err = circuit.Failure, breaker.ErrSlow
	}
	switch {
	case c.gen != m.gen():
	case m.state == breaker.HalfOpen && class == circuit.Success:
		m.enter(breaker.Closed, nil)
	case m.state == breaker.HalfOpen && c == m.probe && class == circuit.Ignored:
		m.probe = nil
	case m.state == breaker.HalfOpen && c == m.probe:
		m.enter(breaker.Open, err)
	case m.state == breaker.HalfOpen || class == circuit.Ignored:
	default:
		m.ended = append(m.ended, ended{c.step, class == circuit.Failure})
		if class == circuit.Success {
			m.row = 0
			return
		}
		m.row++
		if m.row >= m.cfg.Failures || m.tooManyFailed() {
			m.enter(breaker.Open, err)
		}
	}
}

func (m *model) tooManyFailed() bool {
	all, failed := 0, 0
	for _, e := range m.ended {
		if m.step()-e.step < 10 {
			all++
			if e.failed {
				failed++
			}
		}
	}
	return m.cfg.FailureRatio >= 0 && all >= m.cfg.MinCalls &&
		float64(failed)/float64(all) >= m.cfg.FailureRatio
}

func (m *model) retryIn() time.Duration {
	switch {
	case m.state == breaker.Open:
		return max(0, time.Until(m.retryAt))
	case m.state == breaker.HalfOpen && m.probe != nil:
		return max(0, m.patience()-time.Since(m.probe.began))
	}
	return 0
}

func TestModel(t *testing.T) {
	// Ten times rapid's own number of cases: a case costs 0.1 ms.
	for range 10 {
		rapid.Check(t, func(t *rapid.T) {
			cfg := configs.Draw(t, "config")
			rapid.SyncTest(t, func(t *rapid.T) { compare(t, cfg) })
		})
	}
}

var configs = rapid.Custom(func(t *rapid.T) breaker.Config {
	ms := func(name string, of ...int) time.Duration {
		return time.Duration(rapid.SampledFrom(of).Draw(t, name)) * time.Millisecond
	}
	return breaker.Config{
		Failures: rapid.IntRange(1, 8).Draw(t, "failures"),
		// Eighths, so that no rounding decides.
		FailureRatio: float64(rapid.SampledFrom([]int{-8, 1, 2, 4, 6, 8}).Draw(t, "eighths")) / 8,
		MinCalls:     rapid.IntRange(1, 12).Draw(t, "minCalls"),
		Window:       ms("window", 100, 1000, 10000),
		SlowCall:     ms("slow", -1, 10, 100),
		OpenFor:      ms("openFor", 100, 500),
	}
})

// compare drives a breaker and its model through one history, in virtual time.
func compare(t *rapid.T, cfg breaker.Config) {
	var told []breaker.Change
	cfg.OnChange = func(c breaker.Change) { told = append(told, c) }
	b, err := circuit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{cfg: cfg, since: time.Now()}
	b.SetRandom(func(int64) int64 { return int64(m.jitter - cfg.OpenFor/2) })
	var out []*modelCall

	begin := func(t *rapid.T) bool {
		real, ok := b.Begin()
		c, want := m.begin()
		if ok != want {
			t.Fatalf("Begin = %v, model %v", ok, want)
		}
		if ok {
			c.real = real
			out = append(out, c)
		}
		return ok
	}
	end := func(t *rapid.T, i int) {
		took := rapid.SampledFrom([]time.Duration{0, 0, 0, 10, 11, 100, 101}).Draw(t, "took") * time.Millisecond
		err := rapid.SampledFrom([]error{nil, nil, redis.Nil, errDown, errDown, redis.ErrNoScript, context.Canceled}).Draw(t, "err")
		out[i].real.End(took, err)
		m.end(out[i], took, err)
		out = slices.Delete(out, i, i+1)
	}
	t.Repeat(map[string]func(*rapid.T){
		"begin": func(t *rapid.T) { begin(t) },
		"end": func(t *rapid.T) {
			if len(out) == 0 {
				t.Skip("nothing to end")
			}
			end(t, rapid.IntRange(0, len(out)-1).Draw(t, "which"))
		},
		"calls": func(t *rapid.T) {
			for range rapid.IntRange(1, 10).Draw(t, "n") {
				if begin(t) {
					end(t, len(out)-1)
				}
			}
		},
		"sleep": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(0, 150).Draw(t, "ms")) * time.Millisecond)
		},
		"sleep by steps": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(0, 12).Draw(t, "tenths")) * cfg.Window / 10)
		},
		"sleep until retry": func(*rapid.T) { time.Sleep(m.retryIn()) },
		"": func(t *rapid.T) {
			if b.State() != m.state || b.RetryIn() != m.retryIn() {
				t.Fatalf("%v for %v, model %v for %v", b.State(), b.RetryIn(), m.state, m.retryIn())
			}
			if !slices.EqualFunc(told, m.changes, sameChange) {
				t.Fatalf("told  %v\nmodel %v", told, m.changes)
			}
			m.jitter = cfg.OpenFor/2 + time.Duration(rapid.Int64Range(0, int64(cfg.OpenFor)-1).Draw(t, "jitter"))
		},
	})
}

// sameChange compares two changes. For slow calls it ignores the error's text.
func sameChange(a, b breaker.Change) bool {
	if b.Cause == breaker.ErrSlow && errors.Is(a.Cause, b.Cause) {
		a.Cause = b.Cause
	}
	return a == b
}
