package hybrid

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// These constants set how much of a Redis's time a fleet uses to restore it. 64 keys keep Redis busy for about 0.8 ms
// (docs/decisions/0001-batch-size.md). A quarter of its time is some 20 000 keys a second, shared by the processes of
// the fleet. Keys in use are also restored by their own syncs.
const (
	resyncMessage = 50 * time.Microsecond // Redis's time for a message without keys
	resyncOp      = 12 * time.Microsecond // Redis's time for each key in the message
	resyncPart    = 4                     // the fleet uses 1/4 of Redis's time
	// resyncSaved is the most time that one tick may leave to the next: one full message.
	resyncSaved = resyncMessage + wire.MaxOps*resyncOp
	// resyncWithin is the longest random wait before a process begins. The fleet does not notice a loss all at once,
	// nor does a process notice the losses of all its tags at once. It is also the least time between two passes over
	// all keys. A pass takes some 60 ms for 100 000 keys, and passes take at most a fifth of the time.
	resyncWithin = 50 * time.Millisecond
	resyncTick   = 10 * time.Millisecond // between messages, jittered
	// resyncGather is the time in which a lane collects a whole message before it sends.
	resyncGather = time.Millisecond
)

// resync sends Redis this process's views of its keys after Redis has lost them. It sends no owed units. Redis keeps
// the lower level of the two. So a resync restores the use of the whole fleet, and changes nothing if nothing was lost.
type resync struct {
	hub  *Hub
	lost []atomic.Int64 // by server: ns at which the last loss was noticed; 0: never

	mu      sync.Mutex   // guards the fields below, up to wg
	servers map[int]bool // lost servers whose keys wait for a pass; true: the loss is certain
	running bool
	closed  bool
	wg      sync.WaitGroup

	// The rest belongs to the goroutine.
	work  []resyncGroup
	again time.Time     // earliest time of the next pass over the keys
	ahead time.Duration // Redis's time used in advance; negative: saved
}

// resyncGroup holds keys of one server that go in one message.
type resyncGroup struct {
	server  int
	entries []*keys.Entry
}

func (g resyncGroup) cost() time.Duration {
	return resyncMessage + time.Duration(len(g.entries))*resyncOp
}

func newResync(h *Hub) *resync {
	return &resync{hub: h, lost: make([]atomic.Int64, len(h.breakers)), servers: map[int]bool{}}
}

// onLoss is called by the sync engine when a tag has lost its state, or may have. Syncs that the engine settles after
// this call are no older than the loss.
func (r *resync) onLoss(tag int, sure bool) {
	server := r.hub.server(tag)
	r.lost[server].Store(r.hub.clock.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.servers[server] = r.servers[server] || sure
	if !r.running {
		r.running = true
		r.wg.Add(1)
		go r.run()
	}
}

// close stops the goroutine for good. Call it after the hub's context has ended.
func (r *resync) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
}

// run handles losses until there are none.
func (r *resync) run() {
	defer r.wg.Done()
	last := time.Now()
	timer := time.NewTimer(rand.N(resyncWithin))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.hub.ctx.Done():
			return
		}
		now := time.Now()
		if !now.Before(r.again) {
			if lost := r.take(); len(lost) > 0 {
				r.plan(lost)
				r.again = time.Now().Add(max(resyncWithin, 4*time.Since(now)))
			}
		}
		r.ahead = max(-resyncSaved, r.ahead-now.Sub(last)/time.Duration(resyncPart*member.Size(r.hub.parties())))
		last = now
		r.send()
		if len(r.work) == 0 && r.rest() {
			return
		}
		timer.Reset(time.Duration(clock.Jitter(int64(resyncTick))))
	}
}

// take returns the servers that were lost since the last call.
func (r *resync) take() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.servers
	r.servers = map[int]bool{}
	return lost
}

// rest reports whether the goroutine may end.
func (r *resync) rest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = len(r.servers) > 0
	return !r.running
}

// plan groups the keys of the lost servers into messages.
func (r *resync) plan(lost map[int]bool) {
	r.work = slices.DeleteFunc(r.work, func(g resyncGroup) bool { _, again := lost[g.server]; return again })
	byServer, told := map[int][]*keys.Entry{}, 0
	for _, l := range r.hub.all() {
		l.each(func(e *keys.Entry) {
			server := r.hub.server(e.Tag())
			if _, ok := lost[server]; ok && e.Tells(r.lost[server].Load()) {
				byServer[server] = append(byServer[server], e)
				told++
			}
		})
	}
	for server, entries := range byServer {
		for group := range slices.Chunk(entries, wire.MaxOps) {
			r.work = append(r.work, resyncGroup{server, group})
		}
	}
	rand.Shuffle(len(r.work), func(i, j int) { r.work[i], r.work[j] = r.work[j], r.work[i] })
	var sure []int
	for server, is := range lost {
		if is {
			sure = append(sure, server)
		}
	}
	if len(sure) > 0 {
		slices.Sort(sure)
		attrs := []any{slog.Int("keys", told)}
		if len(r.hub.breakers) > 1 {
			attrs = append(attrs, slog.Any("tags", sure))
		}
		r.hub.log.Event(tell.MsgLost, attrs...)
	}
}

// send queues the messages that are due. Those to a Redis that does not answer wait.
func (r *resync) send() {
	for range len(r.work) {
		if r.ahead > 0 {
			return
		}
		g := r.work[0]
		r.work[0] = resyncGroup{}
		r.work = r.work[1:]
		if r.hub.broken(g.server) {
			r.work = append(r.work, g)
			continue
		}
		lost, due := r.lost[g.server].Load(), time.Now().Add(resyncGather)
		for _, e := range g.entries {
			if e.Resync(lost) {
				r.hub.engine.Enqueue(e.Tag(), e, due)
			}
		}
		r.ahead += g.cost()
	}
}

// suspect syncs one key of each server after Redis has forgotten a heartbeat. The answers show whether their data was
// lost too. So a process notices a loss even if it decides nothing and has nothing to sync.
func (h *Hub) suspect() {
	now, asked := h.clock.Now(), make(map[int]bool, len(h.breakers))
	for _, l := range h.all() {
		l.each(func(e *keys.Entry) {
			if server := h.server(e.Tag()); !asked[server] && e.Resync(now) {
				asked[server] = true
				h.engine.Enqueue(e.Tag(), e, time.Now().Add(rand.N(resyncWithin)))
			}
		})
	}
}
