package notice_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// TestBadInput has all violations in one error, with field and value.
func TestBadInput(t *testing.T) {
	on := func(notice.Crossing) {}
	window := newLocal(t, hybridlimit.FixedWindow(10, time.Minute), local.Config{})
	running, err := local.NewConcurrency(hybridlimit.Concurrent(5), local.ConcurrencyConfig{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(limit hybridlimit.Limit) hybridlimit.Limiter { return newLocal(t, limit, local.Config{}) }
	for _, tc := range []struct {
		limiter hybridlimit.Limiter
		cfg     notice.Config
		want    []string
	}{
		{nil, notice.Config{MaxKeys: -1}, []string{"notice: limiter (<nil>) must not be nil", "Config.On (<nil>) is required", "Config.MaxKeys (-1) must not be negative"}},
		{(*local.Limiter)(nil), notice.Config{On: on}, []string{"limiter (<nil>) must not be nil"}},
		{(*notice.Limiter)(nil), notice.Config{On: on}, []string{"limiter (<nil>) must not be nil"}},
		{running, notice.Config{On: on}, []string{`limiter ("*local.ConcurrencyLimiter") counts calls in flight, which have no period`}},
		{limittest.AllowAll(), notice.Config{On: on}, []string{`must describe its limits (adapter.Describer)`, `must have the method Peek`}},
		{of(hybridlimit.PerMinute(5)), notice.Config{On: on}, []string{`limiter ("5 per 1m0s, burst 5 (token bucket)") must count in windows: a token bucket has no period`}},
		{of(hybridlimit.LeakyBucket(5, time.Minute, 0)), notice.Config{On: on}, []string{`a leaky bucket has no period`}},
		{of(hybridlimit.LeakyQueue(5, time.Minute, 0)), notice.Config{On: on}, []string{`a leaky queue has no period`}},
		{of(hybridlimit.SlidingLog(5, time.Minute)), notice.Config{On: on}, []string{`a sliding log has no period`}},
		{window, notice.Config{On: on, At: []float64{}}, []string{"Config.At ([]) must have a threshold, or be nil for 0.8 and 1"}},
		{window, notice.Config{On: on, At: make([]float64, 33)}, []string{"Config.At (33) must not have more than 32 thresholds"}},
		{window, notice.Config{On: on, At: []float64{0, 0.5, 1.01, 0.5, math.NaN(), math.Inf(1), -1}}, []string{
			"Config.At[0] (0) must be above 0 and at most 1", "Config.At[2] (1.01) must be", "Config.At[3] (0.5) is there twice",
			"Config.At[4] (NaN) must be", "Config.At[5] (+Inf) must be", "Config.At[6] (-1) must be",
		}},
	} {
		l, err := notice.New(tc.limiter, tc.cfg)
		if l != nil || !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%T, %+v: %v, %v", tc.limiter, tc.cfg, l, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want also %s", err, want)
			}
		}
	}
}

// TestTheConfigStays changes the slice of the caller after New.
func TestTheConfigStays(t *testing.T) {
	at := []float64{1, 0.5}
	var r told
	n := watch(t, newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{}), notice.Config{At: at, On: r.on})
	if at[0] != 1 || at[1] != 0.5 {
		t.Error("New has changed the slice of its caller")
	}
	at[0], at[1] = 0.1, 0.1
	ask(t, n, "ann", 6)
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if got := r.take(); len(got) != 1 || got[0].At != 0.5 {
		t.Errorf("%+v", got)
	}
}
