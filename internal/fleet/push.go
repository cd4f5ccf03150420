package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/meter"
)

// pushed is the server of [CountAndPush]: a count per key. It keeps debt, which
// is the literature's limiter at its best: one that stops at zero forgets what
// was admitted beyond, and exceeds its rate for as long as the load lasts (9.3
// times at 100 processes and ten times the load). Windows are counted in those
// in which units were admitted.
type pushed struct {
	w      *world
	mu     sync.Mutex
	levels map[string]meter.Meter
	down   bool
}

// delta is what a process pushes of a key.
type delta struct {
	units int64
	at    int64 // when the last of them was admitted
}

// push debits, and returns what is there. All keys of a process go in one
// message.
func (p *pushed) push(at int64, deltas map[string]delta) map[string]meter.Meter {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]meter.Meter, len(deltas))
	for key, d := range deltas {
		m, ok := p.levels[key]
		if !ok {
			m = meter.Of(p.w.s.Limit).Seen(at)
			p.levels[key] = m
		}
		m.Late(at, d.at, d.units)
		out[key] = m.Seen(at)
	}
	return out
}

func (p *pushed) wipe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.levels = map[string]meter.Meter{}
}

// pusher is a process of [CountAndPush]: it admits while the last level that
// it saw, less what it has admitted since and with the refill, suffices, and
// pushes each T. No lease, no bound on what a process admits in between. While
// nobody answers it goes on so, each process by the whole limit, and tells of a
// burst at most when it is over: the rest has been refilled where it was admitted.
type pusher struct {
	w      *world
	net    *network
	server *pushed
	hold   func() // waits while the process or the server is silent
	stop   chan struct{}
	done   sync.WaitGroup

	mu   sync.Mutex
	seen map[string]*sight
	ops  int64
}

// sight is what a pusher knows of a key.
type sight struct {
	meter.Meter       // as last seen, and what was admitted since
	pending     int64 // units not sent
	last        int64 // when the last of them was admitted
}

func newPusher(w *world, net *network, server *pushed, hold func()) *pusher {
	p := &pusher{w: w, net: net, server: server, hold: hold, stop: make(chan struct{}), seen: map[string]*sight{}}
	p.done.Go(p.run)
	return p
}

func (*pusher) mayWait() bool { return false }

func (p *pusher) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen[key]
	if s == nil {
		s = &sight{Meter: meter.Of(p.w.s.Limit)}
		p.seen[key] = s
	}
	now := p.now()
	if !s.Holds(now, n) {
		return hybridlimit.Result{Source: hybridlimit.SourceLocal}, nil
	}
	res := hybridlimit.Result{Allowed: true, Source: hybridlimit.SourceLocal}
	if q, ok := s.Meter.(*meter.Bucket); ok && p.w.s.Limit.Algorithm == hybridlimit.AlgLeakyQueue {
		res.Delay = time.Duration(q.Depth(now, 0))
	}
	s.Admit(now, n)
	s.pending, s.last = s.pending+n, now
	return res, nil
}

func (p *pusher) now() int64 { return p.w.clock(p.w.since()) }

func (p *pusher) run() {
	tick := time.NewTicker(p.w.s.interval())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.push()
		case <-p.stop:
			return
		}
	}
}

// pushTimeout is as HubConfig.SyncTimeout: what is not answered by then is
// pushed again, and counted twice if it was the reply that was lost.
const pushTimeout = 250 * time.Millisecond

func (p *pusher) push() {
	deltas := map[string]delta{}
	p.mu.Lock()
	for key, s := range p.seen {
		if s.pending > 0 {
			deltas[key] = delta{min(s.pending, p.w.s.Limit.BurstSize()), s.last}
			s.pending = 0
		}
	}
	p.ops += int64(len(deltas))
	p.mu.Unlock()
	if len(deltas) == 0 {
		return
	}
	p.w.sent(false)
	f, half := p.net.roll(true), p.w.s.Latency/2
	time.Sleep(half + f.request)
	p.hold()
	p.server.mu.Lock()
	down := p.server.down
	p.server.mu.Unlock()
	if down || f.lost == LoseRequests {
		p.missed(deltas)
		return
	}
	levels := p.server.push(p.now(), deltas)
	if f.lost == Duplicate {
		levels = p.server.push(p.now(), deltas)
	}
	if f.lost == LoseReplies {
		p.missed(deltas)
		return
	}
	time.Sleep(p.w.s.Latency - half + f.reply)
	p.hold()
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, seen := range levels {
		s, now := p.seen[key], p.now()
		s.Meter = seen.Seen(now)
		if s.pending > 0 {
			s.Late(now, s.last, s.pending)
		}
	}
}

func (p *pusher) missed(deltas map[string]delta) {
	time.Sleep(pushTimeout)
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, d := range deltas {
		s := p.seen[key]
		s.pending, s.last = s.pending+d.units, max(s.last, d.at)
	}
}

func (p *pusher) close() {
	close(p.stop)
	p.done.Wait()
}
