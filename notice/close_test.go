package notice_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
	"github.com/hybridlimit/hybridlimit/otellimit"
)

// TestCloseLooksAndTells closes right after a call, before the look, with a slow On. Nothing is told later, and calls
// are decided as before.
func TestCloseLooksAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		l := newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})
		n := watch(t, l, notice.Config{On: func(c notice.Crossing) { time.Sleep(time.Second); r.on(c) }})
		border(time.Hour)
		ask(t, n, "ann", 10)
		ask(t, n, "bob", 1)
		if _, err := l.Charge(t.Context(), "bob", 8); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if got := r.take(); len(got) != 3 || got[2].Key != "bob" || got[2].Used != 9 || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
		if res := ask(t, n, "cid", 10); !res.Allowed || res.Remaining != 0 {
			t.Errorf("after Close: %+v", res)
		}
		time.Sleep(time.Minute)
		if got, s := r.take(), n.Stats(); len(got) != 0 || s.Told != 3 || s.Lost != 0 {
			t.Errorf("after Close: %+v, %+v", got, s)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestTheGoroutineSleeps checks that an unused Limiter sets no timer, and that its goroutine ends with Close. A bubble
// whose goroutines all wait for ever fails the test.
func TestTheGoroutineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		l := &fake{Limiter: newLocal(t, hybridlimit.FixedWindow(10, 2*time.Hour), local.Config{}), onPeek: func() { looks.Add(1) }}
		recorder, err := otellimit.NewRecorder(otellimit.Config{MeterProvider: noop.NewMeterProvider()})
		if err != nil {
			t.Fatal(err)
		}
		counted, err := recorder.Wrap("api", l)
		if err != nil {
			t.Fatal(err)
		}
		border(2 * time.Hour)
		n, err := notice.New(counted, notice.Config{On: func(notice.Crossing) {}})
		if err != nil {
			t.Fatal(err)
		}
		ask(t, n, "ann", 1)
		time.Sleep(time.Hour)
		if looks := looks.Load(); looks != 1 {
			t.Errorf("%d looks at a key of local after one call, want 1", looks)
		}
		for range 3 * 60 {
			ask(t, n, "ann", 1)
			time.Sleep(333 * time.Millisecond)
		}
		if looks := looks.Load(); looks != 1 {
			t.Errorf("%d looks at a key in use, want none more", looks)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// fake is a limiter whose Peek tells the test, and may answer otherwise.
type fake struct {
	*local.Limiter

	onPeek func()
	peek   func(ctx context.Context, key string) (hybridlimit.Result, error)
	policy func(key string) hybridlimit.Policy
}

// ForClass implements adapter.Classer: it has no classes.
func (f *fake) ForClass(string) hybridlimit.Limiter { return f }

func (f *fake) Peek(ctx context.Context, key string) (hybridlimit.Result, error) {
	if f.onPeek != nil {
		f.onPeek()
	}
	if f.peek != nil {
		return f.peek(ctx, key)
	}
	return f.Limiter.Peek(ctx, key)
}

func (f *fake) Policy(key string) hybridlimit.Policy {
	if f.policy != nil {
		return f.policy(key)
	}
	return f.Limiter.Policy(key)
}

// TestAHungRedis stops Redis. The looks wait for it no longer than a tenth of the time, and Close for a second.
func TestAHungRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l, err := global.New(link.Client(func(o *redis.Options) { o.PoolSize = 64 }), hybridlimit.FixedWindow(10, time.Hour), global.Config{Name: "api", Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var r told
		n, err := notice.New(l, notice.Config{On: r.on, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		border(time.Hour)
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"} {
			ask(t, n, key, 7)
		}
		if _, err := l.Charge(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		link.Pause()
		time.Sleep(10 * time.Second)
		if s := n.Stats(); s.Failed < 5 || s.Failed > 12 {
			t.Errorf("looks in ten seconds: %+v", s)
		}
		link.Resume()
		time.Sleep(2 * time.Minute)
		if got := r.take(); !slices.Equal(ats(got), []float64{0.8}) || got[0].Key != "a" {
			t.Errorf("after the outage: %+v", got)
		}
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"} {
			ask(t, n, key, 1)
		}
		synctest.Wait()
		if got := r.take(); len(got) != 14 {
			t.Errorf("%+v", got)
		}
		link.Pause()
		began := time.Now()
		err = n.Close()
		if err == nil || !strings.Contains(err.Error(), "notice: Close: 15 of 15 keys had no last look") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > 1200*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		link.Resume()
	})
}

// TestALimiterThatIsClosed closes the limiter first, which is the wrong order.
func TestALimiterThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		l := newLocal(t, hybridlimit.FixedWindow(10, time.Hour), local.Config{})
		n, err := notice.New(l, notice.Config{On: r.on, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		border(time.Hour)
		ask(t, n, "ann", 1)
		l.Close()
		if err := n.Close(); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
		if s := n.Stats(); s.Failed != 1 {
			t.Errorf("%+v", s)
		}
	})
}
