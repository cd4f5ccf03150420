package redistest

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMini(t *testing.T) {
	m := Mini(t)
	c := Client(t, m.Addr())
	if n, err := c.Incr(t.Context(), "k").Result(); n != 1 || err != nil {
		t.Errorf("INCR = %d, %v", n, err)
	}
}

func TestBubbleCommands(t *testing.T) {
	// Several bubbles in one process: a leak from one makes the next fail.
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			c := NewBubble(t).Client(nil)
			for want := int64(1); want <= 3; want++ {
				if n, err := c.Incr(ctx, "n").Result(); n != want || err != nil {
					t.Fatalf("INCR = %d, %v; want %d", n, err, want)
				}
			}

			incrby := redis.NewScript(`return redis.call('INCRBY', KEYS[1], ARGV[1])`)
			for want := int64(5); want <= 10; want += 5 { // by EVAL, then by EVALSHA
				if n, err := incrby.Run(ctx, c, []string{"s"}, 5).Int64(); n != want || err != nil {
					t.Fatalf("script = %d, %v; want %d", n, err, want)
				}
			}
			if err := incrby.EvalSha(ctx, c, []string{"s"}, 5).Err(); err != nil {
				t.Errorf("EVALSHA: %v", err)
			}

			c.Set(ctx, "ttl", "v", time.Hour)
			time.Sleep(time.Hour - time.Millisecond)
			if d := c.PTTL(ctx, "ttl").Val(); d != time.Millisecond {
				t.Errorf("PTTL a millisecond before expiry: %s", d)
			}
			time.Sleep(time.Millisecond)
			if err := c.Get(ctx, "ttl").Err(); err != redis.Nil {
				t.Errorf("GET after expiry: %v", err)
			}
			if now := c.Time(ctx).Val(); !now.Equal(time.Now()) {
				t.Errorf("TIME is %s, the bubble's clock %s", now, time.Now())
			}
		})
	}
}

func TestBubblePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewBubble(t).Client(nil)
		const commands = 20_000
		pipe := c.Pipeline()
		for range commands {
			pipe.Incr(t.Context(), "k")
		}
		cmds, err := pipe.Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if last := cmds[commands-1].(*redis.IntCmd).Val(); last != commands {
			t.Errorf("the last INCR gave %d", last)
		}
	})
}

func TestBubbleSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		testSubscribe(t, b.Client(nil), b.Client(nil))
	})
}

func TestBubbleKillRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := NewBubble(t)
		c := b.Client(func(o *redis.Options) {
			o.MaxRetries, o.DialerRetries = -1, 1
			o.Protocol = 2 // see TestProxyCutAll
		})
		script := redis.NewScript(`return 1`)
		c.Set(ctx, "k", "v", 0)
		script.Load(ctx, c)

		blocked := make(chan error, 1)
		go func() { blocked <- c.BLPop(ctx, time.Second, "list").Err() }()
		synctest.Wait()
		b.Kill()
		if err := <-blocked; !isReset(err) {
			t.Errorf("a command in flight: %v", err)
		}
		err := c.Ping(ctx).Err()
		var op *net.OpError
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Op != "dial" {
			t.Errorf("while it is down: %v", err)
		}

		b.Restart()
		if err := c.Get(ctx, "k").Err(); err != redis.Nil {
			t.Errorf("a key after the restart: %v", err)
		}
		if err := script.EvalSha(ctx, c, nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("a script after the restart: %v", err)
		}
	})
}

func TestBubbleRestartWithSetError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		b.Mini.SetError("LOADING")
		defer func() {
			if recover() == nil {
				t.Error("Restart did not panic although it left the scripts in place")
			}
		}()
		b.Restart()
	})
}

func TestBubbleClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		direct, linked := b.Client(nil), b.Link().Client(nil)
		direct.Ping(t.Context())
		linked.Ping(t.Context())
		b.Close()
		b.Close()
		for _, c := range []*redis.Client{direct, linked} {
			if err := c.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
				t.Errorf("a client after Close: %v", err)
			}
		}
		if _, err := b.Dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial after Close: %v", err)
		}
	})
}
