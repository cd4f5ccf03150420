package keys

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

// Resync sends Redis this process's views of its keys after Redis has lost them. It sends no owed units. Redis keeps
// the lower level of the two. So a resync restores the use of the whole fleet, and changes nothing if nothing was lost.
type Resync struct {
	env  ResyncEnv
	lost []atomic.Int64 // by server: ns at which the last loss was noticed; 0: never

	mu      sync.Mutex   // guards the fields below, up to wg
	servers map[int]bool // lost servers whose keys wait for a pass; true: the loss is certain
	running bool
	closed  bool
	wg      sync.WaitGroup

	// The rest belongs to the goroutine.
	Work  []resyncGroup
	again time.Time     // earliest time of the next pass over the keys
	ahead time.Duration // Redis's time used in advance; negative: saved
}

// resyncGroup holds keys of one server that go in one message.
type resyncGroup struct {
	server  int
	Entries []*Entry
}

func (g resyncGroup) cost() time.Duration {
	return resyncMessage + time.Duration(len(g.Entries))*resyncOp
}

// ResyncEnv is what a resync needs of its hub.
type ResyncEnv struct {
	Context context.Context // ends with Close
	Clock   *clock.Clock
	Log     *tell.Log
	Servers int                     // that the hub tells apart
	Server  func(tag int) int       // the index of a tag's server
	Broken  func(server int) bool   // Redis does not answer
	Fleet   func() int64            // the largest N of the hub's limiters
	Each    func(func(*Entry))      // calls a function for every key of the hub
	Enqueue func(*Entry, time.Time) // syncs a key at a time
}

// NewResync returns the resync of a hub. It has no goroutine until Redis has lost something.
func NewResync(env ResyncEnv) *Resync {
	return &Resync{env: env, lost: make([]atomic.Int64, env.Servers), servers: map[int]bool{}}
}

// LostAt returns the time (ns) at which the last loss of the server of a tag was noticed; 0: never.
func (r *Resync) LostAt(tag int) int64 { return r.lost[r.env.Server(tag)].Load() }

// OnLoss is called by the sync engine when a tag has lost its state, or may have. Syncs that the engine settles after
// this call are no older than the loss.
func (r *Resync) OnLoss(tag int, sure bool) {
	server := r.env.Server(tag)
	r.lost[server].Store(r.env.Clock.Now())
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

// Close stops the goroutine for good. Call it after the hub's context has ended.
func (r *Resync) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
}

// run handles losses until there are none.
func (r *Resync) run() {
	defer r.wg.Done()
	last := time.Now()
	timer := time.NewTimer(rand.N(resyncWithin))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.env.Context.Done():
			return
		}
		now := time.Now()
		if !now.Before(r.again) {
			if lost := r.take(); len(lost) > 0 {
				r.Plan(lost)
				r.again = time.Now().Add(max(resyncWithin, 4*time.Since(now)))
			}
		}
		r.ahead = max(-resyncSaved, r.ahead-now.Sub(last)/time.Duration(resyncPart*r.env.Fleet()))
		last = now
		r.send()
		if len(r.Work) == 0 && r.rest() {
			return
		}
		timer.Reset(time.Duration(clock.Jitter(int64(resyncTick))))
	}
}

// take returns the servers that were lost since the last call.
func (r *Resync) take() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.servers
	r.servers = map[int]bool{}
	return lost
}

// rest reports whether the goroutine may end.
func (r *Resync) rest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = len(r.servers) > 0
	return !r.running
}

// Plan groups the keys of the lost servers into messages.
func (r *Resync) Plan(lost map[int]bool) {
	r.Work = slices.DeleteFunc(r.Work, func(g resyncGroup) bool { _, again := lost[g.server]; return again })
	byServer, told := map[int][]*Entry{}, 0
	r.env.Each(func(e *Entry) {
		server := r.env.Server(e.Tag())
		if _, ok := lost[server]; ok && e.Tells(r.lost[server].Load()) {
			byServer[server] = append(byServer[server], e)
			told++
		}
	})
	for server, entries := range byServer {
		for group := range slices.Chunk(entries, wire.MaxOps) {
			r.Work = append(r.Work, resyncGroup{server, group})
		}
	}
	rand.Shuffle(len(r.Work), func(i, j int) { r.Work[i], r.Work[j] = r.Work[j], r.Work[i] })
	var sure []int
	for server, is := range lost {
		if is {
			sure = append(sure, server)
		}
	}
	if len(sure) > 0 {
		slices.Sort(sure)
		attrs := []any{slog.Int("keys", told)}
		if r.env.Servers > 1 {
			attrs = append(attrs, slog.Any("tags", sure))
		}
		r.env.Log.Event(tell.MsgLost, attrs...)
	}
}

// send queues the messages that are due. Those to a Redis that does not answer wait.
func (r *Resync) send() {
	for range len(r.Work) {
		if r.ahead > 0 {
			return
		}
		g := r.Work[0]
		r.Work[0] = resyncGroup{}
		r.Work = r.Work[1:]
		if r.env.Broken(g.server) {
			r.Work = append(r.Work, g)
			continue
		}
		lost, due := r.lost[g.server].Load(), time.Now().Add(resyncGather)
		for _, e := range g.Entries {
			if e.Resync(lost) {
				r.env.Enqueue(e, due)
			}
		}
		r.ahead += g.cost()
	}
}

// Suspect syncs one key of each server after Redis has forgotten a heartbeat. The answers show whether their data was
// lost too. So a process notices a loss even if it decides nothing and has nothing to sync.
func (r *Resync) Suspect() {
	now, asked := r.env.Clock.Now(), make(map[int]bool, r.env.Servers)
	r.env.Each(func(e *Entry) {
		if server := r.env.Server(e.Tag()); !asked[server] && e.Resync(now) {
			asked[server] = true
			r.env.Enqueue(e, time.Now().Add(rand.N(resyncWithin)))
		}
	})
}
