package global_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestInspect checks that Inspect describes the state in Redis under every algorithm, on
// one server and in a cluster. It agrees with Peek and changes nothing.
func TestInspect(t *testing.T) {
	t.Parallel()
	day := testenv.OpenWindow(time.Now(), 1, 24*time.Hour)
	clients := map[string]redis.UniversalClient{"server": redistest.New(t).Client(t), "cluster": redistest.NewCluster(t, 2).Client(t)}
	for where, rdb := range clients {
		ctx := t.Context()
		for _, c := range []struct {
			name             string
			limit            hybridlimit.Limit
			none, some, over string // the sentence for an unused key, with 3 of 10 used, and with all used
		}{
			{"bucket", hybridlimit.TokenBucket(1, time.Hour, 10), "no bucket of the key", "allowed because the bucket has 7 of 10 units left", "denied for 1h0m0s because none of the 10 units of the bucket is left"},
			{"queue", hybridlimit.LeakyQueue(1, time.Hour, 10), "no queue of the key", "allowed because the queue has 7 of 10 units left", "because none of the 10 units of the queue is left"},
			{"fixed", hybridlimit.FixedWindow(10, day), "no window of the key", "allowed because the window has 7 of 10 units left", "because none of the 10 units of the window is left"},
			{"sliding", hybridlimit.SlidingWindow(10, day), "no window of the key", "allowed because the window has 7 of 10 units left", "because none of the 10 units of the window is left"},
			{"log", hybridlimit.SlidingLog(10, time.Hour), "no log of the key", "allowed because the log has 7 of 10 units left", "because none of the 10 units of the log is left"},
		} {
			l, err := global.New(rdb, c.limit, global.Config{Name: c.name, Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			look := func(want string) hybridlimit.KeyState {
				t.Helper()
				k, err := l.Inspect(ctx, "k")
				if err != nil {
					t.Fatal(err)
				}
				said := k.String()
				if k.RetryAfter > 0 { // to the second
					said = strings.Replace(said, k.RetryAfter.String(), k.RetryAfter.Round(time.Minute).String(), 1)
				}
				if !strings.Contains(said, want) {
					t.Errorf("%s, %s: %q, want %q", where, c.name, said, want)
				}
				res, err := l.Peek(ctx, "k")
				if err != nil || res.Remaining != k.Left || res.Allowed != (k.RetryAfter == 0) || (res.ResetAfter-k.ResetAfter).Abs() > time.Minute {
					t.Errorf("%s, %s: %+v, Peek says %+v, %v", where, c.name, k, res, err)
				}
				return k
			}
			if k := look(c.none); k.Found || k.Left != 10 {
				t.Errorf("%+v", k)
			}
			ask := func(n int64) {
				t.Helper()
				if res, err := l.AllowN(ctx, "k", n); err != nil || !res.Allowed {
					t.Errorf("%+v, %v", res, err)
				}
			}
			ask(3)
			before := look(c.some)
			if !before.Found || before.TTL <= 0 || c.name != "log" && (before.Debited != 3 || time.Since(before.Born).Abs() > time.Hour) {
				t.Errorf("%s, %s: %+v", where, c.name, before)
			}
			if after := look(c.some); after.Born != before.Born || after.TTL > before.TTL {
				t.Errorf("%s, %s: changed from %+v to %+v", where, c.name, before, after)
			}
			ask(7)
			if k := look(c.over); k.RetryAfter <= 0 || k.Left != 0 || k.Debt != 0 {
				t.Errorf("%+v", k)
			}
			if c.name == "bucket" {
				if _, err := l.Charge(ctx, "k", 3); err != nil {
					t.Error(err)
				}
				if k := look("denied for 4h0m0s because the bucket is 3 units beyond the limit"); k.Debt != 3 {
					t.Errorf("%+v", k)
				}
				text, err := json.Marshal(before)
				if err != nil || !strings.Contains(string(text), `"limit":"1/h burst 10","found":true,"left":7,"debt":0`) {
					t.Errorf("%s, %v", text, err)
				}
			}
			l.Close()
		}
	}
}

func TestInspectWithoutRedis(t *testing.T) {
	t.Parallel()
	l, err := global.New(redistest.Client(t, "127.0.0.1:1"), hybridlimit.PerSecond(1), global.Config{Name: "api", Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inspect(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
		t.Errorf("without Redis: %v", err)
	}
	if _, err := l.Inspect(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
		t.Errorf("without a key: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Inspect(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	l.Close()
	if _, err := l.Inspect(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	blocked, err := global.New(redistest.Client(t, "127.0.0.1:1"), hybridlimit.Blocked(), global.Config{Name: "shut"})
	if err != nil {
		t.Fatal(err)
	}
	defer blocked.Close()
	if k, err := blocked.Inspect(t.Context(), "k"); err != nil || k.String() != "Redis is not asked because the limit is blocked" {
		t.Errorf("%v, %v", k, err)
	}
}
