package redistest

import (
	"errors"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// setup returns a server, a proxy in front of it, and a client that bypasses the
// proxy to check the state of the server.
func setup(t *testing.T) (*Server, *Proxy, *redis.Client) {
	t.Helper()
	s := New(t)
	return s, NewProxy(t, s.Addr()), s.Client(t)
}

// TestProxyVerdicts is TestMemLinkVerdicts on real sockets, without exact times.
func TestProxyVerdicts(t *testing.T) {
	t.Parallel()
	_, p, direct := setup(t)
	for i, tt := range []struct {
		v        Verdict
		err      func(error) bool
		least    time.Duration
		executed int
	}{
		{Forward(), isNil, 0, 1},
		{DropRequest(ThenClose), isEOF, 0, 0},
		{DropRequest(ThenHang), isTimeout, readTimeout, 0},
		{DropReply(ThenClose), isEOF, 0, 1},
		{DropReply(ThenHang), isTimeout, readTimeout, 1},
		{Duplicate(), isNil, 0, 2},
		{Delay(20 * time.Millisecond), isNil, 20 * time.Millisecond, 1},
		{DelayReply(20 * time.Millisecond), isNil, 20 * time.Millisecond, 1},
		{Delay(80 * time.Millisecond), isTimeout, readTimeout, 1},
	} {
		t.Run(tt.v.String(), func(t *testing.T) {
			ctx, key := t.Context(), "k"+strconv.Itoa(i)
			c := p.Client(t, noRetries)
			if tt.least == readTimeout { // the other cases must not time out on a slow machine
				c = p.Client(t, impatient)
			}
			connect(t, c)
			before := p.Count("INCR")
			p.Script(OnNth("INCR", 0, tt.v))
			start := time.Now()
			n, err := c.Incr(ctx, key).Result()
			if took := time.Since(start); took < tt.least || !tt.err(err) || err == nil && n != 1 {
				t.Errorf("INCR = %d, %v after %s", n, err, took)
			}
			Eventually(t, patience, "the counter settles", func() bool {
				n, _ := direct.Get(ctx, key).Int()
				return n == tt.executed
			})
			after := p.Count("INCR")
			if after.Seen-before.Seen != 1 || after.Forwarded-before.Forwarded != tt.executed {
				t.Errorf("counted %+v, before %+v", after, before)
			}
		})
	}
}

// A reply is lost after the execution. The server has counted once. With its
// default retries, go-redis makes the server count again.
func TestProxyDropReplyAndRetries(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, p, direct := setup(t)

	p.Script(OnNth("INCR", 0, DropReply(ThenClose)))
	if err := p.Client(t, noRetries).Incr(ctx, "once").Err(); !isEOF(err) {
		t.Errorf("without retries: %v", err)
	}
	if n, _ := direct.Get(ctx, "once").Int(); n != 1 {
		t.Errorf("without retries it was executed %d times, want 1", n)
	}

	p.Script(OnNth("INCR", 0, DropReply(ThenClose)))
	if n, err := p.Client(t).Incr(ctx, "twice").Result(); n != 2 || err != nil {
		t.Errorf("with retries: %d, %v; want 2", n, err)
	}
	if n, _ := direct.Get(ctx, "twice").Int(); n != 2 {
		t.Errorf("with retries it was executed %d times, want 2", n)
	}
}

func TestProxyPipeline(t *testing.T) {
	t.Parallel()
	_, p, _ := setup(t)
	const commands = 5000
	pipe := p.Client(t).Pipeline()
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
}

func TestProxySubscribe(t *testing.T) {
	t.Parallel()
	_, p, direct := setup(t)
	for _, protocol := range []int{2, 3} {
		testSubscribe(t, p.Client(t, func(o *redis.Options) { o.Protocol = protocol }), direct)
	}
}

func TestProxyPause(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, p, direct := setup(t)
	c := p.Client(t, impatient)
	connect(t, c)
	p.Pause()
	if err := c.Incr(ctx, "k").Err(); !isTimeout(err) {
		t.Errorf("INCR over a paused proxy: %v", err)
	}
	if n := direct.Exists(ctx, "k").Val(); n != 0 {
		t.Error("a paused proxy forwarded a request")
	}
	p.Resume()
	Eventually(t, patience, "the late INCR is executed", func() bool {
		return direct.Get(ctx, "k").Val() == "1"
	})
	Eventually(t, patience, "the proxy closes the connection of the client that gave up", func() bool {
		return p.Conns() == 0
	})
}

func TestProxyRefuse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, p, _ := setup(t)
	c := p.Client(t, noRetries, func(o *redis.Options) { o.DialerRetries = 1 })
	c.Ping(ctx)
	for range 2 {
		if err := p.Refuse(true); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ping(ctx).Err(); err != nil {
		t.Errorf("on an old connection: %v", err)
	}
	late := p.Client(t, noRetries, func(o *redis.Options) { o.DialerRetries = 1 })
	if err := late.Ping(ctx).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("on a new connection: %v", err)
	}
	for range 2 {
		if err := p.Refuse(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := late.Ping(ctx).Err(); err != nil {
		t.Errorf("after Refuse(false): %v", err)
	}
}

// A proxy continues when its server is restarted on the same port.
func TestProxyServerRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, p, _ := setup(t)
	c := p.Client(t, noRetries)
	c.Ping(ctx)
	s.Kill()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a killed server answered")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, patience, "the client comes back", func() bool { return c.Ping(ctx).Err() == nil })
}

func TestProxyNoLeak(t *testing.T) {
	noLeak(t)
	s := New(t)
	p := NewProxy(t, s.Addr())
	// The connections are in every state when the proxy is closed.
	for _, v := range []Verdict{Forward(), DropReply(ThenHang), Delay(time.Hour), DropRequest(ThenHang)} {
		p.Script(OnEvery("INCR", v))
		p.Client(t, impatient).Incr(t.Context(), "k")
	}
	p.Pause()
	p.Client(t, impatient).Ping(t.Context())
	p.Close()
	p.Close()
	if n := p.Conns(); n != 0 {
		t.Errorf("%d connections after Close", n)
	}
	if err := p.Client(t, noRetries).Ping(t.Context()).Err(); err == nil {
		t.Error("a closed proxy answered")
	}
}

func TestProxyWithoutServer(t *testing.T) {
	t.Parallel()
	port, err := hold(0)
	if err != nil {
		t.Fatal(err)
	}
	defer port.release()
	p := NewProxy(t, loopback(port.number))
	if err := p.Client(t, noRetries).Ping(t.Context()).Err(); err == nil {
		t.Error("PING without a server = nil, want an error")
	}
}
