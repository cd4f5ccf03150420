package global_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/runner"
)

// nobody returns a client without a server. New does not connect.
func nobody(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var ten = hybridlimit.PerSecond(10)

// A limit of calls in flight is refused, with the package that has one.
func TestCallsInFlightAreNoRate(t *testing.T) {
	limit := hybridlimit.Concurrent(5)
	l, err := global.New(nobody(t), limit, global.Config{Name: "a"})
	if l != nil || !errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), "use NewConcurrency of package local, for one process") {
		t.Errorf("New: %v, %v", l, err)
	}
	for _, first := range []hybridlimit.Limit{ten, hybridlimit.Unlimited()} {
		own, err := global.New(nobody(t), first, global.Config{Name: "a", LimitFor: func(key string) hybridlimit.Limit { return limit }})
		if err != nil {
			t.Fatal(err)
		}
		_, perKey := own.Allow(t.Context(), "k")
		_, perCall := own.AllowLimit(t.Context(), "k", 1, limit)
		for how, err := range map[string]error{"SetLimit": own.SetLimit(limit), "LimitFor": perKey, "AllowLimit": perCall} {
			if !errors.Is(err, hybridlimit.ErrUnsupported) {
				t.Errorf("%v, %s: %v", first, how, err)
			}
		}
		_ = own.Close()
	}
}

func TestConfigViolations(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		cfg   global.Config
		want  []string // invalid fields
	}{
		{"nothing", hybridlimit.Limit{}, global.Config{}, []string{"Limit.Rate", "Limit.Period", "Config.Name"}},
		{"all at once", hybridlimit.TokenBucket(-1, -time.Second, -1), global.Config{
			Prefix: "a:b", Tags: -1, Name: "{x}", Timeout: -1, MaxKeyBytes: -1,
		}, []string{
			"Limit.Rate", "Limit.Period", "Limit.Burst",
			"Config.Prefix", "Config.Name", "Config.Tags", "Config.Timeout", "Config.MaxKeyBytes",
		}},
		{"inexact", hybridlimit.TokenBucket(1, 24*time.Hour, 1_000_000), global.Config{Name: "x"}, []string{"Limit"}},
		{"long name", ten, global.Config{Name: strings.Repeat("x", 129)}, []string{"Config.Name"}},
		{"too many tags", ten, global.Config{Name: "x", Tags: 16385}, []string{"Config.Tags"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := global.New(nobody(t), tc.limit, tc.cfg)
			wantErr(t, err, hybridlimit.ErrInvalid)
			var bad *hybridlimit.InvalidError
			if l != nil || !errors.As(err, &bad) {
				t.Fatalf("New = %v, %v", l, err)
			}
			var fields []string
			for _, v := range bad.Violations {
				fields = append(fields, v.Field)
				if !strings.Contains(err.Error(), v.Field+" (") {
					t.Errorf("%q does not name %s", err, v.Field)
				}
			}
			if !slices.Equal(fields, tc.want) || !strings.HasPrefix(err.Error(), "global: ") {
				t.Errorf("%q names %v, want %v", err, fields, tc.want)
			}
		})
	}
}

func TestConfigBounds(t *testing.T) {
	for _, cfg := range []global.Config{
		{Name: "x"},
		{Name: strings.Repeat("x", 128), Prefix: strings.Repeat("y", 128), Tags: 16384},
		{Name: "A-Za-z0-9_.-", Prefix: ".", Tags: 1, Timeout: 1, MaxKeyBytes: 1},
	} {
		if _, err := global.New(nobody(t), ten, cfg); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestNilClient checks that a nil client is reported together with the violations, also
// a nil pointer in the interface.
func TestNilClient(t *testing.T) {
	for name, rdb := range map[string]redis.UniversalClient{
		"nil":            nil,
		"*Client":        (*redis.Client)(nil),
		"*ClusterClient": (*redis.ClusterClient)(nil),
		"*Ring":          (*redis.Ring)(nil),
	} {
		_, err := global.New(rdb, ten, global.Config{})
		wantErr(t, err, hybridlimit.ErrNilClient, hybridlimit.ErrInvalid)
		if _, err := runner.New(rdb, time.Second); !errors.Is(err, hybridlimit.ErrNilClient) {
			t.Errorf("runner.New of a nil %s: %v", name, err)
		}
		if err := runner.CheckClient(rdb); !errors.Is(err, hybridlimit.ErrNilClient) {
			t.Errorf("CheckClient of a nil %s: %v", name, err)
		}
	}
	if err := runner.CheckClient(nobody(t)); err != nil {
		t.Errorf("CheckClient: %v", err)
	}
}
