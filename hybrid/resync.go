package hybrid

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// What a fleet that restores a Redis asks of it: 64 keys keep Redis busy for
// about 0.8 ms (docs/decisions/0001-batch-size.md), and a quarter of its time
// is some 20 000 keys a second, shared by the fleet's processes. The keys in
// use are restored by their own syncs besides.
const (
	resyncMessage = 50 * time.Microsecond // Redis's time for a message
	resyncOp      = 12 * time.Microsecond // and for each key in it
	resyncPart    = 4                     // the fleet takes 1/4 of Redis's time
	// resyncSaved is what a tick may leave to the next: one full message.
	resyncSaved = resyncMessage + wire.MaxOps*resyncOp
	// resyncWithin is the longest that a process waits before it begins, at
	// random: the fleet does not learn of a loss at once, nor a process of all
	// its tags. So often, at most, it goes through its keys (100 000 take some
	// 60 ms), and for a fifth of the time.
	resyncWithin = 50 * time.Millisecond
	resyncTick   = 10 * time.Millisecond // between messages, jittered
	// resyncGather lets a lane see all of a message before it sends.
	resyncGather = time.Millisecond
)

// resync tells Redis what this process knows of its keys, where Redis has lost
// that: a view, and nothing owed. Redis takes the larger use, so that this
// restores what everyone used, and does nothing where nothing was lost.
type resync struct {
	hub  *Hub
	lost []atomic.Int64 // by tag: ns at which its last loss was noticed; 0: never

	mu      sync.Mutex   // guards what follows
	tags    map[int]bool // lost, and not looked through yet; true: for sure
	running bool
	closed  bool
	wg      sync.WaitGroup

	// The rest belongs to the goroutine.
	work  []resyncGroup
	again time.Time     // when the keys may be gone through again
	ahead time.Duration // of Redis's time that was taken in advance; negative: saved
}

// resyncGroup is keys of one tag that go in one message.
type resyncGroup struct {
	tag     int
	entries []*entry
}

func (g resyncGroup) cost() time.Duration {
	return resyncMessage + time.Duration(len(g.entries))*resyncOp
}

func newResync(h *Hub) *resync {
	return &resync{hub: h, lost: make([]atomic.Int64, h.cfg.Tags), tags: map[int]bool{}}
}

// onLoss is for the sync engine. What it settles from here on is no older than
// the loss.
func (r *resync) onLoss(tag int, sure bool) {
	r.lost[tag].Store(r.hub.clock.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.tags[tag] = r.tags[tag] || sure
	if !r.running {
		r.running = true
		r.wg.Add(1)
		go r.run()
	}
}

// close stops the goroutine, after the hub's context has ended, for good.
func (r *resync) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
}

// run works off losses until there are none.
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
		r.ahead = max(-resyncSaved, r.ahead-now.Sub(last)/time.Duration(resyncPart*r.hub.fleetSize()))
		last = now
		r.send()
		if len(r.work) == 0 && r.rest() {
			return
		}
		timer.Reset(time.Duration(r.hub.jitter(int64(resyncTick))))
	}
}

// take returns the tags that were lost since the last time.
func (r *resync) take() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.tags
	r.tags = map[int]bool{}
	return lost
}

// rest says that the goroutine may end.
func (r *resync) rest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = len(r.tags) > 0
	return !r.running
}

// plan goes through all keys for those of lost tags.
func (r *resync) plan(lost map[int]bool) {
	r.work = slices.DeleteFunc(r.work, func(g resyncGroup) bool { _, again := lost[g.tag]; return again })
	byTag, keys := map[int][]*entry{}, 0
	for _, l := range r.hub.all() {
		l.store.each(func(e *entry) {
			if _, ok := lost[e.tag()]; ok && e.tells(r.lost[e.tag()].Load()) {
				byTag[e.tag()] = append(byTag[e.tag()], e)
				keys++
			}
		})
	}
	for tag, entries := range byTag {
		for group := range slices.Chunk(entries, wire.MaxOps) {
			r.work = append(r.work, resyncGroup{tag, group})
		}
	}
	rand.Shuffle(len(r.work), func(i, j int) { r.work[i], r.work[j] = r.work[j], r.work[i] })
	var sure []int
	for tag, is := range lost {
		if is {
			sure = append(sure, tag)
		}
	}
	if len(sure) > 0 {
		slices.Sort(sure)
		r.hub.log.event(msgLost, slog.Any("tags", sure), slog.Int("keys", keys))
	}
}

// send queues what is due. Tags whose Redis does not answer wait.
func (r *resync) send() {
	for range len(r.work) {
		if r.ahead > 0 {
			return
		}
		g := r.work[0]
		r.work[0] = resyncGroup{}
		r.work = r.work[1:]
		if r.hub.broken(g.tag) {
			r.work = append(r.work, g)
			continue
		}
		lost, due := r.lost[g.tag].Load(), time.Now().Add(resyncGather)
		for _, e := range g.entries {
			if e.again(lost) {
				r.hub.engine.Enqueue(g.tag, e, due)
			}
		}
		r.ahead += g.cost()
	}
}

// fleetSize is the largest N of the hub's limiters.
func (h *Hub) fleetSize() int64 {
	n := int64(1)
	for _, l := range h.all() {
		n = max(n, l.fleet.Size())
	}
	return n
}

// suspect has one key per tag synced, because Redis has forgotten a heartbeat:
// the answers tell whether the tags were lost too. So a process learns of a
// loss that decides nothing and has nothing to sync.
func (l *Limiter) suspect() {
	now, asked := l.hub.clock.Now(), make(map[int]bool, l.hub.cfg.Tags)
	l.store.each(func(e *entry) {
		if !asked[e.tag()] && e.again(now) {
			asked[e.tag()] = true
			l.hub.engine.Enqueue(e.tag(), e, time.Now().Add(rand.N(resyncWithin)))
		}
	})
}

// tells says whether Redis may learn something from the entry's view.
func (e *entry) tells(lost int64) bool {
	e.lock()
	defer e.unlock()
	return !e.dead && e.account.Tells(e.plan.Load().Bucket, lost)
}

// again has the view told at the next sync, if it is not newer than a loss.
func (e *entry) again(lost int64) bool {
	e.lock()
	defer e.unlock()
	return !e.dead && e.account.Resync(e.plan.Load().Bucket, lost)
}
