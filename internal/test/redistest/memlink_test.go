package redistest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMemLinkLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := NewBubble(t).Link()
		c := l.Client(nil)
		l.Latency(2*time.Millisecond, 3*time.Millisecond)
		const roundTrip = 5 * time.Millisecond

		start := time.Now()
		conn, err := l.Dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if d := time.Since(start); d != roundTrip {
			t.Errorf("dialling took %s", d)
		}

		c.Ping(ctx) // connects
		start = time.Now()
		c.Incr(ctx, "k")
		if d := time.Since(start); d != roundTrip {
			t.Errorf("a command took %s", d)
		}

		pipe := c.Pipeline()
		pipe.Ping(ctx)
		pipe.Exec(ctx) // connects: go-redis keeps a second pool for pipelines
		for range 1000 {
			pipe.Incr(ctx, "k")
		}
		start = time.Now()
		pipe.Exec(ctx)
		if d := time.Since(start); d != roundTrip {
			t.Errorf("a pipeline took %s", d)
		}
	})
}

func TestMemLinkDialGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBubble(t).Link()
		l.Latency(time.Hour, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := l.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial: %v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("after %s", d)
		}
	})
}

// A dead connection delays a call exactly by its read time-out, to the
// nanosecond.
func TestMemLinkPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := NewBubble(t)
		l := b.Link()
		c := l.Client(impatient)
		c.Ping(ctx)
		l.Pause()
		l.Pause()
		start := time.Now()
		for i := range 3 { // on an old connection, then on new ones
			err := c.Incr(ctx, "k").Err()
			if d := time.Since(start); !isTimeout(err) || d != time.Duration(i+1)*readTimeout {
				t.Errorf("INCR %d: %v after %s", i, err, d)
			}
		}
		if got, _ := b.Mini.Get("k"); got != "" {
			t.Errorf("%s requests passed a paused link", got)
		}
		l.Resume()
		l.Resume()
		synctest.Wait()
		// One request was sent. The others never completed their handshake.
		if got, _ := b.Mini.Get("k"); got != "1" {
			t.Errorf("after Resume the counter is %q, want 1", got)
		}
		if n, err := c.Incr(ctx, "k").Result(); n != 2 || err != nil {
			t.Errorf("after Resume: %d, %v", n, err)
		}
	})
}

// The end of a connection is delivered as late as its data.
func TestMemLinkPauseHoldsEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		l := b.Link()
		conn, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		l.Pause()
		b.Kill()
		conn.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := conn.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("through the paused link: %v", err)
		}
		conn.SetReadDeadline(time.Time{})
		l.Resume()
		if _, err := conn.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("after Resume: %v", err)
		}
	})
}

func TestMemLinkRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := NewBubble(t).Link()
		c := l.Client(impatient)
		c.Ping(ctx)
		l.Refuse(true)
		if err := c.Ping(ctx).Err(); err != nil {
			t.Errorf("on an old connection: %v", err)
		}
		l.CutAll()
		c.Ping(ctx) // detects the reset
		if err := c.Ping(ctx).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("on a new connection: %v", err)
		}
		l.Refuse(false)
		if err := c.Ping(ctx).Err(); err != nil {
			t.Errorf("after Refuse(false): %v", err)
		}
	})
}

// Each link fails alone, without the other links and the Redis.
func TestMemLinksAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		bad, good := b.Link(), b.Link()
		bad.Pause()
		if err := good.Client(impatient).Ping(t.Context()).Err(); err != nil {
			t.Errorf("over the good link: %v", err)
		}
		if err := bad.Client(impatient).Ping(t.Context()).Err(); !isTimeout(err) {
			t.Errorf("over the bad link: %v", err)
		}
	})
}

func TestMemLinkSubscribe(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBubble(t)
			l := b.Link()
			l.Latency(time.Millisecond, time.Millisecond)
			testSubscribe(t, l.Client(func(o *redis.Options) { o.Protocol = protocol }), b.Client(nil))
		})
	}
}

// A script may sleep while callers queue behind it. It may also call methods of
// its link.
func TestMemLinkSlowScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		l := b.Link()
		c := l.Client(nil)
		l.Script(func(n int, cmd []string) Verdict {
			time.Sleep(time.Millisecond)
			if l.Count(cmd[0]).Seen == 0 {
				t.Error("the request is not counted before the script sees it")
			}
			return Forward()
		})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { c.Incr(t.Context(), "k") })
		}
		all.Wait()
		if got, _ := b.Mini.Get("k"); got != "8" {
			t.Errorf("k = %s", got)
		}
	})
}

func TestMemLinkScriptCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := NewBubble(t).Link()
		c := l.Client(nil)
		c.Ping(ctx)
		for range 2 {
			var got []int
			l.Script(func(n int, cmd []string) Verdict {
				if !slices.Equal(cmd, []string{"set", "k", "a b"}) {
					t.Errorf("the script saw %q", cmd)
				}
				got = append(got, n)
				return Forward()
			})
			c.Set(ctx, "k", "a b", 0)
			c.Set(ctx, "k", "a b", 0)
			if !slices.Equal(got, []int{0, 1}) {
				t.Errorf("counted %v", got)
			}
		}
		if got := l.Counts()["SET"]; got != (Count{4, 4}) {
			t.Errorf("Counts: %+v", got)
		}
	})
}

func TestMemLinkMalformedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := NewBubble(t).Link().Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write([]byte("*x\r\n"))
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read: %v", err)
		}
	})
}
