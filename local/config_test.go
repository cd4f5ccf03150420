package local

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

func TestViolationsAreReportedTogether(t *testing.T) {
	good := hybridlimit.PerSecond(10)
	for _, tc := range []struct {
		name   string
		limit  hybridlimit.Limit
		cfg    Config
		fields []string
	}{
		{"zero limit", hybridlimit.Limit{}, Config{}, []string{"Limit.Rate", "Limit.Period"}},
		{"unknown algorithm", hybridlimit.Limit{Algorithm: 99, Rate: 1, Period: time.Second}, Config{}, []string{"Limit.Algorithm"}},
		{"name", good, Config{Name: "a b"}, []string{"Config.Name"}},
		{"keys", good, Config{MaxKeys: -1}, []string{"Config.MaxKeys"}},
		{"key bytes", good, Config{MaxKeyBytes: -1}, []string{"Config.MaxKeyBytes"}},
		{"refresh", good, Config{LimitRefresh: -time.Second}, []string{"Config.LimitRefresh"}},
		{"negative idle", good, Config{IdleAfter: -1}, []string{"Config.IdleAfter"}},
		{"amnesty", good, Config{IdleAfter: time.Second - 1}, []string{"Config.IdleAfter"}},
		{"amnesty of a fraction", hybridlimit.PerSecond(3), Config{IdleAfter: time.Second - 1}, []string{"Config.IdleAfter"}},
		{
			"everything",
			hybridlimit.Limit{Rate: -1, Period: 1, Burst: -1},
			Config{Name: "ü", MaxKeys: -1, MaxKeyBytes: -1, IdleAfter: -1},
			[]string{"Limit.Rate", "Limit.Period", "Limit.Burst", "Config.Name", "Config.MaxKeys", "Config.MaxKeyBytes", "Config.IdleAfter"},
		},
		// Without a valid limit, IdleAfter has no bound.
		{"bad limit, any idle", hybridlimit.Limit{Period: time.Second}, Config{IdleAfter: 1}, []string{"Limit.Rate"}},
		{"window", hybridlimit.FixedWindow(1, time.Second), Config{IdleAfter: time.Second - 1}, []string{"Config.IdleAfter"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := New(tc.limit, tc.cfg)
			if l != nil || !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Fatalf("got %v and %v, want ErrInvalid", l, err)
			}
			var invalid *hybridlimit.InvalidError
			if !errors.As(err, &invalid) || invalid.Package != "local" || !strings.HasPrefix(err.Error(), "local: ") {
				t.Fatalf("%v is not from package local", err)
			}
			var fields []string
			for _, v := range invalid.Violations {
				fields = append(fields, v.Field)
			}
			if !slices.Equal(fields, tc.fields) {
				t.Errorf("fields %q, want %q", fields, tc.fields)
			}
		})
	}
}

func TestAllAlgorithmsAreOffered(t *testing.T) {
	for _, limit := range everyAlgorithm(3, time.Second) {
		if must(t, limit, Config{}).first != limit {
			t.Errorf("New changed the limit %v", limit)
		}
	}
	// The first algorithm that hybridlimit does not define. If hybridlimit defines it
	// later, New must refuse it until newEntry knows it.
	next := hybridlimit.AlgConcurrent + 1
	l, err := New(hybridlimit.Limit{Algorithm: next, Rate: 1, Period: time.Second}, Config{})
	if l != nil || offered(next) || !errors.Is(err, hybridlimit.ErrUnsupported) && !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("an unknown algorithm: %v and %v", l, err)
	}
}

// A rate limiter refuses a limit of calls in flight, also where a limit changes, and
// names the constructor.
func TestCallsInFlightAreNoRate(t *testing.T) {
	limit := hybridlimit.Concurrent(5)
	l, err := New(limit, Config{})
	if l != nil || !errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), "use NewConcurrency") {
		t.Errorf("New: %v, %v", l, err)
	}
	for _, first := range []hybridlimit.Limit{hybridlimit.PerSecond(1), hybridlimit.Unlimited()} {
		own := must(t, first, Config{LimitFor: func(key string) hybridlimit.Limit {
			if key == "own" {
				return limit
			}
			return first
		}})
		_, perCall := own.AllowLimit(t.Context(), "k", 1, limit)
		_, perKey := own.Allow(t.Context(), "own")
		for how, err := range map[string]error{"SetLimit": own.SetLimit(limit), "AllowLimit": perCall, "LimitFor": perKey} {
			if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "use NewConcurrency") {
				t.Errorf("%v, %s: %v", first, how, err)
			}
		}
		if err := own.SetLimit(hybridlimit.FixedWindow(1, time.Second)); first == hybridlimit.Unlimited() && err != nil {
			t.Errorf("the refused limit has set the algorithm: %v", err)
		}
	}
}

func TestDefaults(t *testing.T) {
	limit := hybridlimit.TokenBucket(3, time.Second, 7)
	want := Config{MaxKeys: 100_000, MaxKeyBytes: adapter.DefaultMaxKeyBytes, IdleAfter: limit.TimeToFull(), LimitRefresh: time.Minute}
	if got := must(t, limit, Config{}).cfg; !reflect.DeepEqual(got, want) {
		t.Errorf("zero Config becomes %+v, want %+v", got, want)
	}
	set := Config{Name: "n", MaxKeys: 1, MaxKeyBytes: 2, IdleAfter: limit.TimeToFull(), LimitRefresh: time.Second}
	if got := must(t, limit, set).cfg; !reflect.DeepEqual(got, set) {
		t.Errorf("%+v was changed to %+v", set, got)
	}
}
