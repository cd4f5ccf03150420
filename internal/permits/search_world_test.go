package permits_test

import (
	"math/rand/v2"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
	"github.com/hybridlimit/hybridlimit/internal/test/permitstest"
)

const (
	second = int64(1_000_000_000)
	period = second // of the heartbeats
)

// world has a fleet, one tag of Redis, and the network between them. The processes run the real engine.
// Redis is its twin in Go.
type world struct {
	setting
	fleet.Agenda // virtual time

	rnd   *rand.Rand
	redis redis
	procs []*process
	keys  []*key
	bad   []string // broken rules

	failed int64    // ns; the last failover
	kept   []string // keys of which permits stayed booked after a failover, for the one reason that decision 0051 names

	admitted, arrived, asked, losses int64 // calls, calls, ops without those of Tell, and losses that Redis reported
}

// setting are the parameters of a schedule.
type setting struct {
	procs, keysCount int
	limit            int64
	most             int64 // permits of a call
	share            bool  // the fallback gives shares
	patience         int64 // ns
	loss, double     float64
	delay            func(*world) int64
	timeout          int64 // ns
	mutant           string
	faulty           bool // Redis may report losses
}

// key is what an observer knows of a key.
type key struct {
	name    string
	bound   int64           // permits that calls in flight may use
	running map[*call]bool  // that count: not those of the fallback, and not those that outlive a cut-off
	strict  int64           // their permits
	excess  int64           // most above bound
	stuck   map[*call]int64 // ns; since when a first waiting call could be admitted
	began   int64           // ns; the last begin of a call, without the fallback
}

// call is one call at a process.
type call struct {
	waiter  permits.Waiter
	proc    *process
	key     int
	runs    bool
	lasts   int64 // ns
	ended   bool
	waiting bool
}

// redis is one tag and the heartbeats of the fleet.
type redis struct {
	memory   *permitstest.Memory
	beats    map[string]int64
	losses   int64 // 0: it begins with the next heartbeat, at a number that it never had
	step     int64 // of the clock, µs
	snapshot *redis
}

func (r *redis) clone() *redis {
	c := &redis{memory: r.memory.Clone(), beats: map[string]int64{}, losses: r.losses}
	for k, v := range r.beats {
		c.beats[k] = v
	}
	return c
}

func (w *world) micros() int64 { return 10_000_000_000 + w.Now/1000 + w.redis.step }

func newWorld(s setting, rnd *rand.Rand) *world {
	w := &world{setting: s, rnd: rnd}
	w.redis.memory, w.redis.beats = &permitstest.Memory{}, map[string]int64{}
	for i := range s.keysCount {
		w.keys = append(w.keys, &key{name: string(rune('a' + i)), bound: s.limit, running: map[*call]bool{}, stuck: map[*call]int64{}})
	}
	for i := range s.procs {
		w.procs = append(w.procs, newProcess(w, i))
	}
	return w
}

// exchange sends a request and brings its answer back. Either may be lost. The request may arrive twice.
func (w *world) exchange(request func() (answer func())) {
	times := 1
	if w.rnd.Float64() < w.double {
		times = 2
	}
	for range times {
		if w.rnd.Float64() < w.loss {
			continue
		}
		w.After(w.delay(w), func() {
			answer := request()
			if answer == nil || w.rnd.Float64() < w.loss {
				return
			}
			w.After(w.delay(w), answer)
		})
	}
}

func (w *world) exp(mean int64) int64 { return int64(w.rnd.ExpFloat64() * float64(mean)) }

// starts counts a call that begins now.
func (w *world) starts(c *call, how permits.Admission) {
	w.admitted++
	c.runs = true
	if how == permits.Fallback {
		return
	}
	for _, p := range w.procs {
		p.excuse()
	}
	k := w.keys[c.key]
	k.began = w.Now
	k.running[c] = true
	k.strict += c.waiter.N
	k.excess = max(k.excess, k.strict-k.bound)
}

// drop ends the counting of a call.
func (w *world) drop(c *call) {
	if k := w.keys[c.key]; k.running[c] {
		delete(k.running, c)
		k.strict -= c.waiter.N
	}
}

// receive is Redis's part of a message.
func (w *world) receive(names []string, m permits.Message) (permits.Answer, error) {
	memory, now := w.redis.memory, w.micros()
	memory.Expire(now)
	switch w.mutant {
	case "stale":
		if n, ok := memory.Numbers[m.Process]; ok {
			memory.Numbers[m.Process] = permitstest.Number{Number: min(n.Number, m.Number-1), At: n.At}
		}
	case "learn":
		m.Period = 0
	case "gap":
		m.After, m.Epoch = 0, 0
	case "claim":
		for i, o := range m.Ops {
			for j, c := range o.Claims {
				if k := memory.Keys[names[i]]; k != nil {
					m.Ops[i].Claims[j].Number = k.Held[c.Process].Number
				}
			}
		}
	}
	return memory.Receive(now, names, m)
}

// beat is Redis's part of a heartbeat.
func (w *world) beat(process string, p permits.Pulse) (losses int64, beats []int64) {
	r := &w.redis
	if r.losses == 0 {
		r.losses = w.micros()
	}
	r.losses += p.Losses
	r.beats[process] = w.micros()
	for _, s := range p.Suspects {
		beats = append(beats, r.beats[s])
	}
	return r.losses, beats
}

func (w *world) wipe() {
	w.redis.memory, w.redis.beats, w.redis.losses = &permitstest.Memory{}, map[string]int64{}, 0
}

func (w *world) replicate() { w.redis.snapshot = w.redis.clone() }

func (w *world) failOver() {
	w.failed = w.Now
	if s := w.redis.snapshot; s != nil {
		w.redis = *s.clone()
	}
}
