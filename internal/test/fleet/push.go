package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// pushed is the server of [CountAndPush]: one count per key. It keeps debt, which is the best form of this limiter in
// the literature. A count that stops at zero forgets the units admitted beyond it. Such a limiter exceeds its rate for
// as long as the load lasts (9.3 times at 100 processes and ten times the load). Units count in the window in which
// they were admitted.
type pushed struct {
	w      *world
	mu     sync.Mutex
	levels map[string]meter.Meter
	down   bool
}

// delta is the units of one key that a process pushes.
type delta struct {
	units int64
	at    int64 // time of the last admission among them
}

// push debits the units and returns the levels. All keys of a process go in one message.
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

// change is called for what the world does to the server.
func (p *pushed) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// pusher is a process of [CountAndPush]. It admits a call while the last level that it saw is sufficient. It subtracts
// its own admissions since then and adds the refill. It pushes each T. There are no leases and no bound on its
// admissions between two pushes.
//
// In an outage each process continues, by the whole limit. After the outage it reports at most a burst. The rest was
// refilled where it was admitted.
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

// sight is a pusher's knowledge of a key.
type sight struct {
	meter.Meter       // the level as last seen, and the admissions since then
	pending     int64 // units not sent
	last        int64 // time of the last admission among them
}

func newPusher(w *world, net *network, hold func()) *pusher {
	p := &pusher{w: w, net: net, server: w.pushed, hold: hold, stop: make(chan struct{}), seen: map[string]*sight{}}
	p.done.Go(p.run)
	return p
}

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

// pushTimeout corresponds to HubConfig.SyncTimeout. A push without an answer until then is repeated. If only the reply
// was lost, it counts twice.
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
