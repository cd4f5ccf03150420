package httplimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// A queue delays requests, and denies only when it is full.
func TestShapingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := middleware(t, httplimit.Config{}, httplimit.Limit{
			Limiter: newLocal(t, "shape", hybridlimit.LeakyQueue(1, time.Second, 3)), Key: fixed("k"),
		})(&served{})
		start := time.Now()
		took := make(chan time.Duration, 4)
		for range 4 {
			go func() {
				if res := get(h); res.StatusCode == http.StatusTooManyRequests {
					took <- -1
				} else {
					took <- time.Since(start)
				}
			}()
		}
		sum := time.Duration(0)
		refused := 0
		for range 4 {
			if d := <-took; d < 0 {
				refused++
			} else {
				sum += d
			}
		}
		if refused != 1 || sum != 3*time.Second { // at once, after 1 s, after 2 s
			t.Errorf("%d refused, waited %v in all", refused, sum)
		}
	})
}

// A request that ends while it is delayed does not reach the handler. A request that
// would end before its place comes is not delayed.
func TestShapingHonoursTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &served{}
		handler := middleware(t, httplimit.Config{}, httplimit.Limit{
			Limiter: newLocal(t, "shape", hybridlimit.LeakyQueue(1, time.Second, 10)), Key: fixed("k"),
		})(h)
		get(handler)
		start := time.Now()
		for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
			"gone": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(300*time.Millisecond, cancel)
				return ctx, cancel
			},
			"a deadline": func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), time.Millisecond)
			},
		} {
			ctx, cancel := ctx()
			defer cancel()
			if res := get(handler, func(r *http.Request) { *r = *r.WithContext(ctx) }); res.StatusCode != 503 || h.requests() != 1 {
				t.Errorf("%s: %d, %d served", name, res.StatusCode, h.requests())
			}
		}
		if waited := time.Since(start); waited != 300*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
	})
}

// A request that gives up returns its units to all limits, asked together or in
// turn. Its response has no figures, because they would be those before the return.
// FailOpen does not admit it.
func TestGivingUpGivesBack(t *testing.T) {
	for name, limits := range map[string]func(t *testing.T) (queue, bucket hybridlimit.Limiter){
		"local, together": func(t *testing.T) (hybridlimit.Limiter, hybridlimit.Limiter) {
			return newLocal(t, "queue", hybridlimit.LeakyQueue(1, time.Second, 10)), newLocal(t, "bucket", hybridlimit.PerHour(100))
		},
		"local, in turn": func(t *testing.T) (hybridlimit.Limiter, hybridlimit.Limiter) {
			type alone struct { // is no Joint
				hybridlimit.Limiter
				refunds
			}
			l := newLocal(t, "bucket", hybridlimit.PerHour(100))
			return newLocal(t, "queue", hybridlimit.LeakyQueue(1, time.Second, 10)), alone{l, l}
		},
		"wrapped, in turn": func(t *testing.T) (hybridlimit.Limiter, hybridlimit.Limiter) {
			return newLocal(t, "queue", hybridlimit.LeakyQueue(1, time.Second, 10)), wrapped{wrapped{newLocal(t, "bucket", hybridlimit.PerHour(100))}}
		},
		"global": func(t *testing.T) (hybridlimit.Limiter, hybridlimit.Limiter) {
			rdb := redistest.NewBubble(t).Client(nil)
			return newGlobal(t, rdb, "queue", hybridlimit.LeakyQueue(1, time.Second, 10)), newGlobal(t, rdb, "bucket", hybridlimit.PerHour(100))
		},
		"hybrid": func(t *testing.T) (hybridlimit.Limiter, hybridlimit.Limiter) {
			hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { hub.Close() })
			queue, err := hub.Limiter(hybridlimit.LeakyQueue(1, time.Second, 10), hybrid.Config{Name: "queue", MaxWait: time.Second, Mode: hybrid.ModeExact})
			if err != nil {
				t.Fatal(err)
			}
			bucket, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "bucket", MaxWait: time.Second, Mode: hybrid.ModeExact})
			if err != nil {
				t.Fatal(err)
			}
			return queue, bucket
		},
	} {
		for _, failure := range []httplimit.Failure{httplimit.FailClosed, httplimit.FailOpen} {
			t.Run(fmt.Sprintf("%s/%v", name, failure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					queue, bucket := limits(t)
					h := &served{}
					var log lines
					handler := middleware(t, httplimit.Config{Failure: failure, XRateLimit: true, Logger: log.logger()},
						httplimit.Limit{Limiter: queue, Key: fixed("k"), Bucket: "b"},
						httplimit.Limit{Limiter: bucket, Key: fixed("k"), Name: "other"})(h)
					get(handler)
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						res := get(handler, func(r *http.Request) { *r = *r.WithContext(ctx) })
						cancel()
						if res.StatusCode != 503 || h.requests() != 1 || res.Header.Get("Cache-Control") != "no-store" {
							t.Fatalf("%d, %d served", res.StatusCode, h.requests())
						}
						for _, field := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining", "X-RateLimit-Bucket", "Retry-After"} {
							if v := res.Header.Get(field); v != "" {
								t.Errorf("%s: %s", field, v)
							}
						}
					}
					if log.count() != 1 || !strings.Contains(log.String(), "WARN") {
						t.Errorf("%s", log.String())
					}
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(300*time.Millisecond, cancel) // a client that goes
					get(handler, func(r *http.Request) { *r = *r.WithContext(ctx) })
					start := time.Now()
					res := get(handler)
					if res.StatusCode != 200 || time.Since(start) > 750*time.Millisecond {
						t.Errorf("%d after %v: requests that gave up still have places in the queue", res.StatusCode, time.Since(start))
					}
					if got := res.Header.Get("RateLimit"); !strings.Contains(got, `"other";r=98`) {
						t.Errorf("RateLimit: %s, want 98 left of 100: two are served", got)
					}
					if log.count() != 1 {
						t.Errorf("a client that goes is no failure: %s", log.String())
					}
				})
			})
		}
	}
}

// wrapped has only the decisions of the limiter that it wraps.
type wrapped struct{ hybridlimit.Limiter }

func (w wrapped) Unwrap() hybridlimit.Limiter { return w.Limiter }

// refunds is the method that the middleware uses besides decisions.
type refunds interface {
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

func newGlobal(t *testing.T, rdb redis.UniversalClient, name string, limit hybridlimit.Limit) *global.Limiter {
	t.Helper()
	l, err := global.New(rdb, limit, global.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// After a delay, the figures of a response are those of its sending.
func TestFieldsAfterADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := middleware(t, httplimit.Config{XRateLimit: true}, httplimit.Limit{
			Limiter: newLocal(t, "shape", hybridlimit.LeakyQueue(1, 10*time.Second, 3)), Key: fixed("k"),
		})(&served{})
		for range 3 { // the second and the third come as soon as the one before is served
			if got := get(handler).Header.Get("X-RateLimit-Reset-After"); got != "10.000" {
				t.Errorf("X-RateLimit-Reset-After: %s, want that of one request", got)
			}
		}
	})
}
