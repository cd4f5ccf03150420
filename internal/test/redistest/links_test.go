package redistest

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMemConnConcurrent(t *testing.T) {
	a, b := memPipe()
	const rounds, size = 200, 300
	var all sync.WaitGroup
	for _, c := range []*memConn{a, b} {
		for range 2 { // two writers on each end, whose writes must stay whole
			all.Go(func() {
				for i := range rounds {
					c.Write(bytes.Repeat([]byte{byte(i)}, size))
				}
			})
		}
		all.Go(func() {
			block := make([]byte, size)
			for range 2 * rounds {
				if _, err := io.ReadFull(c, block); err != nil {
					t.Errorf("Read: %v", err)
					return
				}
				if !bytes.Equal(block, bytes.Repeat(block[:1], size)) {
					t.Error("two writes were mixed")
					return
				}
			}
		})
		all.Go(func() {
			for i := range rounds {
				c.SetReadDeadline(time.Now().Add(time.Duration(i+1) * time.Hour))
			}
		})
	}
	all.Wait()
}

func TestBubbleConcurrentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		var all sync.WaitGroup
		for range 8 {
			c := b.Client(nil)
			for range 8 {
				all.Go(func() { c.Incr(t.Context(), "k") })
			}
		}
		all.Wait()
		if got, _ := b.Mini.Get("k"); got != "64" {
			t.Errorf("k = %s", got)
		}
	})
}

func TestProxyConcurrent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, p, direct := setup(t)
	c := p.Client(t)
	p.Script(func(n int, cmd []string) Verdict {
		if n%10 == 9 && cmd[0] == "incr" {
			return Duplicate()
		}
		return Forward()
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				c.Incr(ctx, "k")
				p.Counts()
				p.Conns()
			}
		})
	}
	all.Wait()
	if n, _ := direct.Get(ctx, "k").Int(); n != p.Count("INCR").Forwarded || n < 400 {
		t.Errorf("Redis counted %d, the proxy %+v", n, p.Count("INCR"))
	}
}

func TestProxyCutAll(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, p, _ := setup(t)
	for protocol, want := range map[int]func(error) bool{
		2: isReset,
		// go-redis first peeks for push messages, and drops that error. The kernel
		// reports a reset only once.
		3: isEOF,
	} {
		c := p.Client(t, noRetries, func(o *redis.Options) { o.Protocol = protocol })
		before := p.Count("BLPOP").Forwarded
		blocked := make(chan error)
		go func() { blocked <- c.BLPop(ctx, 0, "list").Err() }()
		Eventually(t, patience, "BLPOP is in flight", func() bool { return p.Count("BLPOP").Forwarded > before })
		p.CutAll()
		if err := <-blocked; !want(err) {
			t.Errorf("BLPOP with RESP%d: %v", protocol, err)
		}
		if err := c.Ping(ctx).Err(); err != nil {
			t.Errorf("on a new connection: %v", err)
		}
	}
}

func TestMemLinkCutAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := NewBubble(t)
		l := b.Link()
		c := l.Client(impatient)
		l.Script(OnNth("INCR", 0, Delay(20*time.Millisecond)))
		got := make(chan error)
		go func() { got <- c.Incr(ctx, "k").Err() }()
		time.Sleep(10 * time.Millisecond)
		if n := l.Conns(); n != 1 {
			t.Errorf("%d connections before the cut", n)
		}
		l.CutAll()
		if err := <-got; !isEOF(err) { // EOF with RESP3; see TestProxyCutAll
			t.Errorf("INCR: %v", err)
		}
		time.Sleep(time.Minute)
		if n := l.Conns(); n != 0 {
			t.Errorf("%d connections after the cut", n)
		}
		if n, err := c.Incr(ctx, "k").Result(); n != 1 || err != nil {
			t.Errorf("INCR on a new connection = %d, %v; want 1, because requests in flight are lost", n, err)
		}
	})
}
