package fleet

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
)

// neighbours adds the neighbours to a hub.
func (w *world) neighbours(h *hybrid.Hub, seed uint64) *neighbours.Set {
	s, err := neighbours.Add(h, seed)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// callNeighbours makes calls to the neighbours until the load ends.
func (p *process) callNeighbours() {
	rng := p.w.rng(forNeighbours, p.number, 1)
	every := time.Second / time.Duration(p.w.s.Neighbours)
	for !p.ended.Load() && time.Duration(p.w.since()) < p.w.s.Span {
		time.Sleep(every/2 + time.Duration(rng.Int64N(int64(every))))
		if !p.paused.Load() && !p.ended.Load() {
			p.calls.Go(p.neighbours.Call)
		}
	}
}

// checkNeighbours compares the neighbours of all processes with their promises, after the end of the fleet.
func (w *world) checkNeighbours() {
	if w.s.Neighbours == 0 {
		return
	}
	var of neighbours.World
	for _, f := range w.s.Faults {
		switch f.Kind {
		case Crash:
			of.Crashes += max(1, w.s.Processes)
		case Leave:
		case Wipe, KillRedis, EvictKey, Mistype:
			of.Losses++
		default:
			continue
		}
		of.Drops = true
	}
	var all []neighbours.Report
	for _, p := range w.procs {
		all = append(all, p.neighbours.Report())
	}
	for _, broken := range neighbours.Check(of, all) {
		w.violate("%s", broken)
	}
	w.freePermits()
}

// freePermits checks that no permit of a neighbour is lost: a new process can have all of them.
func (w *world) freePermits() {
	link := w.bubble.Link()
	h, err := hybrid.NewHub(link.Client(func(o *redis.Options) { o.PoolSize = poolFor }), w.config().Hub)
	if err != nil {
		w.t.Fatal(err)
	}
	defer h.Close()
	time.Sleep(10 * time.Second) // the memberships of killed processes have ended, and the breaker is closed
	s := w.neighbours(h, 0)
	time.Sleep(5 * time.Second)
	s.Takeoff() // a process that has ended with running calls loses its permits after a refusal
	time.Sleep(3100 * time.Millisecond)
	for _, broken := range s.Takeoff() {
		w.violate("%s", broken)
	}
}
