package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// naivePermits is the oracle of a ConcurrencyLimiter: a list of calls in the order in
// which they came, which is searched anew after each event.
type naivePermits struct {
	most  int64
	keys  int
	calls []*naiveCall
}

type naiveCall struct {
	key    string
	n      int64
	until  time.Time // the end of its wait
	state  string    // "waits", "holds", "denied", "ended", "shut", "full" or "over"
	permit hybridlimit.Permit
	cancel context.CancelFunc
	got    string // the state that the limiter tells; empty: none yet
}

func (o *naivePermits) held(key string) (n int64) {
	for _, c := range o.calls {
		if c.key == key && c.state == "holds" {
			n += c.n
		}
	}
	return n
}

// busy returns the number of keys with calls that hold or wait.
func (o *naivePermits) busy() int {
	keys := map[string]bool{}
	for _, c := range o.calls {
		if c.state == "holds" || c.state == "waits" {
			keys[c.key] = true
		}
	}
	return len(keys)
}

// serve admits and refuses calls in their order until nothing changes.
func (o *naivePermits) serve() {
	blocked := map[string]bool{}
	for _, c := range o.calls {
		switch {
		case c.state != "waits" || blocked[c.key]:
		case c.n > o.most:
			c.state = "denied"
		case o.held(c.key)+c.n <= o.most:
			c.state = "holds"
		default:
			blocked[c.key] = true
		}
	}
}

// pass ends the waits that are over by now, in the order of their ends.
func (o *naivePermits) pass(now time.Time) {
	for {
		var next *naiveCall
		for _, c := range o.calls {
			if c.state == "waits" && !c.until.After(now) && (next == nil || c.until.Before(next.until)) {
				next = c
			}
		}
		if next == nil {
			return
		}
		next.state = "denied"
		o.serve()
	}
}

func (o *naivePermits) begin(c *naiveCall, wait time.Duration) {
	switch {
	case c.n > o.most:
		c.state = "denied"
	case o.busy() == o.keys && !slices.ContainsFunc(o.calls, func(b *naiveCall) bool {
		return b.key == c.key && (b.state == "holds" || b.state == "waits")
	}):
		c.state = "full"
	default:
		c.state = "waits"
	}
	o.calls = append(o.calls, c)
	o.serve()
	if c.state == "waits" && wait == 0 {
		c.state = "denied"
	}
}

// TestConcurrencyAgreesWithTheOracle runs random calls, releases, ends of contexts,
// changes of the limit and a Close in virtual time. A call begins at a multiple of
// 10 ms and waits for 35 ms, so no two events come in one moment.
func TestConcurrencyAgreesWithTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			wait := rapid.SampledFrom([]time.Duration{0, 35 * time.Millisecond}).Draw(t, "wait")
			o := &naivePermits{most: rapid.Int64Range(1, 6).Draw(t, "permits"), keys: rapid.IntRange(1, 3).Draw(t, "keys")}
			l, err := NewConcurrency(hybridlimit.Concurrent(o.most), ConcurrencyConfig{MaxWait: wait, MaxKeys: o.keys})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close() // a check that fails leaves no call in the bubble
			compare := func() {
				synctest.Wait()
				for i, c := range o.calls {
					if want := c.state; want != "waits" && c.got != want && want != "over" || want == "waits" && c.got != "" {
						t.Fatalf("call %d, %d of %s, %s, and the limiter says %q", i, c.n, c.key, want, c.got)
					}
				}
				for _, key := range []string{"a", "b", "c"} {
					if l.Running(key) != o.held(key) {
						t.Fatalf("%d of %s are running, want %d", l.Running(key), key, o.held(key))
					}
				}
				if l.Len() != o.busy() {
					t.Fatalf("%d keys, want %d", l.Len(), o.busy())
				}
			}
			those := func(state string) (of []*naiveCall) {
				for _, c := range o.calls {
					if c.state == state {
						of = append(of, c)
					}
				}
				return of
			}
			release := func(c *naiveCall) {
				c.permit.Release()
				c.permit.Release()
				c.state = "over"
				o.serve()
			}
			for range rapid.IntRange(1, 40).Draw(t, "events") {
				time.Sleep(time.Duration(rapid.IntRange(1, 3).Draw(t, "pause")) * 10 * time.Millisecond)
				o.pass(time.Now())
				compare()
				switch holding, waiting := those("holds"), those("waits"); rapid.SampledFrom([]string{"call", "call", "call", "release", "release", "cancel", "limit", "old"}).Draw(t, "event") {
				case "call":
					c := &naiveCall{key: rapid.SampledFrom([]string{"a", "a", "b", "c"}).Draw(t, "key"), n: rapid.Int64Range(1, 5).Draw(t, "n"), until: time.Now().Add(wait)}
					var ctx context.Context
					ctx, c.cancel = context.WithCancel(context.Background())
					go func() {
						permit, res, err := l.AcquireN(ctx, c.key, c.n)
						c.permit = permit
						switch {
						case errors.Is(err, context.Canceled):
							c.got = "ended"
						case errors.Is(err, hybridlimit.ErrTooManyKeys):
							c.got = "full"
						case errors.Is(err, hybridlimit.ErrClosed):
							c.got = "shut"
						case err != nil:
							c.got = err.Error()
						case res.Allowed:
							c.got = "holds"
						case res.RetryAfter <= 0 || res.Remaining < 0:
							c.got = fmt.Sprintf("%+v", res)
						default:
							c.got = "denied"
						}
					}()
					o.begin(c, wait)
				case "release":
					if len(holding) > 0 {
						release(rapid.SampledFrom(holding).Draw(t, "of"))
					}
				case "old": // a permit that was released before
					if over := those("over"); len(over) > 0 {
						rapid.SampledFrom(over).Draw(t, "of").permit.Release()
					}
				case "cancel":
					if len(waiting) > 0 {
						c := rapid.SampledFrom(waiting).Draw(t, "of")
						c.cancel()
						c.state = "ended"
						o.serve()
					}
				case "limit":
					o.most = rapid.Int64Range(1, 6).Draw(t, "permits")
					if err := l.SetLimit(hybridlimit.Concurrent(o.most)); err != nil {
						t.Fatal(err)
					}
					o.serve()
				}
				compare()
			}
			_ = l.Close()
			for _, c := range those("waits") {
				c.state = "shut"
			}
			compare()
			for _, c := range those("holds") {
				c.permit.Release()
				c.state = "over"
			}
			compare()
			for _, c := range o.calls {
				c.cancel()
			}
		})
	})
}
