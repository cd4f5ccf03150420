package neighbours

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

const (
	// Units is the burst of each limit, or the units of its window.
	Units = 100
	// Permits is each limit of calls in flight.
	Permits = 20

	period = 2000 * time.Hour // no unit comes back within a test
	class  = "rest"           // leaves a fifth of the units to the limiter's own class
	most   = 3                // units of a call, and permits
)

// limits are one of each algorithm.
var limits = []struct {
	name string
	hybridlimit.Limit
}{
	{"bucket", hybridlimit.TokenBucket(1, period, Units)},
	{"leaky-bucket", hybridlimit.LeakyBucket(1, period, Units)},
	{"queue", hybridlimit.LeakyQueue(1, period, Units)},
	{"window", hybridlimit.FixedWindow(Units, period)},
	{"calendar-window", hybridlimit.CalendarWindow(Units, hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "America/New_York"})},
	{"sliding-window", hybridlimit.SlidingWindow(Units, period)},
	{"log", hybridlimit.SlidingLog(Units, period)},
}

// Set is the neighbours in one hub. Its methods are for one goroutine, Call excepted.
type Set struct {
	limiters []*neighbour
	flights  []*flight
	leased   *leased
	hub      *hybrid.Hub
	began    time.Time

	mu       sync.Mutex // guards the fields below, and the counts of the limiters
	rng      *rand.Rand
	violated []string
}

// neighbour is a limiter with a class.
type neighbour struct {
	name, key string
	views     []*hybrid.Limiter
	ahead     bool // Reserve books units that will come back, and tells when
	books     Books
}

// flight is a limit of calls in flight.
type flight struct {
	name    string
	limiter *hybrid.ConcurrencyLimiter
	running []hybridlimit.Permit // the oldest first
}

// Books has the counts of one limiter in one process.
type Books struct {
	Name     string
	Mode     hybrid.Mode
	Granted  int64 // units, to callers, without those that they gave back
	Fallback int64 // the part of Granted that the fallback admitted
	Unsure   int64 // units given back with a message that had no answer: Redis may have them
	Unpaid   int64 // units charged whose message had no answer
	Share    int64 // the largest share that the fallback may have had, in units; 0: it was not asked
	Stats    hybrid.Stats
}

// Add adds neighbours to a hub. All calls follow from the seed. One limiter of three decides without Redis after 150
// µs, and one never waits for Redis.
func Add(h *hybrid.Hub, seed uint64) (*Set, error) {
	s := &Set{hub: h, rng: rand.New(rand.NewPCG(seed, 0)), began: time.Now()}
	for i, limit := range limits {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			n := &neighbour{name: fmt.Sprint("beside-", limit.name, "-", mode), key: fmt.Sprint("n", i%4)}
			wait := []time.Duration{0, 150 * time.Microsecond, -1}[(i+int(mode))%3]
			if mode == hybrid.ModeExact { // it waits for every decision
				wait = max(wait, 0)
			}
			cfg := hybrid.Config{Name: n.name, Mode: mode, MaxWait: wait}
			if limit.Algorithm != hybridlimit.AlgSlidingLog { // it has no floors
				cfg.Classes = []hybrid.Class{{Name: class, Floor: 0.2}}
			}
			l, err := h.Limiter(limit.Limit, cfg)
			if err != nil {
				return nil, err
			}
			n.views, n.books = []*hybrid.Limiter{l}, Books{Name: n.name, Mode: mode}
			for _, c := range cfg.Classes {
				rest, err := l.Class(c.Name)
				if err != nil {
					return nil, err
				}
				n.views = append(n.views, rest)
			}
			n.ahead = limit.Algorithm == hybridlimit.AlgTokenBucket || limit.Algorithm == hybridlimit.AlgLeakyBucket
			s.limiters = append(s.limiters, n)
		}
	}
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeExact} {
		name := fmt.Sprint("beside-flight-", mode)
		l, err := h.Concurrency(hybridlimit.Concurrent(Permits), hybrid.ConcurrencyConfig{Name: name, Mode: mode})
		if err != nil {
			return nil, err
		}
		s.flights = append(s.flights, &flight{name: name, limiter: l})
	}
	var err error
	s.leased, err = addLeased(h)
	return s, err
}

// draw returns a random number below n.
func (s *Set) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// Call makes one call: any verb of any limiter. It may be called from several goroutines.
func (s *Set) Call() {
	switch s.draw(16) {
	case 0:
		s.rate(s.leased)
		return
	case 1, 2:
		s.fly(s.flights[s.draw(len(s.flights))])
		return
	}
	l := s.limiters[s.draw(len(s.limiters))]
	view, n := l.views[s.draw(len(l.views))], 1+int64(s.draw(most))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.draw(60))*time.Millisecond)
	defer cancel()
	switch s.draw(16) {
	case 0:
		res, err := view.AllowAtMost(context.Background(), l.key, most)
		s.told(l, res, err)
	case 1:
		_, err := view.Peek(context.Background(), l.key)
		s.gave(l, 0, 0, err)
	case 2:
		s.reserve(ctx, l, view, n)
	case 3:
		res, err := view.Wait(ctx, l.key, n)
		s.told(l, res, err)
	case 4:
		cancel()
		res, err := view.AllowN(ctx, l.key, n)
		s.told(l, res, err)
	case 5:
		_, err := view.Charge(context.Background(), l.key, 1)
		s.gave(l, 0, 0, err)
		if err != nil {
			s.mu.Lock()
			l.books.Unpaid++
			s.mu.Unlock()
		}
	case 6:
		s.joint(l, s.limiters[s.draw(len(s.limiters))], n)
	case 7: // paid, and given back
		if res, err := view.AllowN(context.Background(), l.key, n); s.told(l, res, err) {
			_, err := view.Refund(context.Background(), l.key, n)
			s.gave(l, n, res.Source, err)
		}
	default:
		res, err := view.AllowN(ctx, l.key, n)
		s.told(l, res, err)
	}
}

// reserve books units, and cancels half of the bookings.
func (s *Set) reserve(ctx context.Context, l *neighbour, view *hybrid.Limiter, n int64) {
	switch r, err := view.Reserve(ctx, l.key, n); {
	case err != nil:
		s.told(l, hybridlimit.Result{}, err)
	case r.Delay > 0 && l.ahead: // the units come back after the test
		s.gave(l, 0, r.Source, r.Cancel(context.Background()))
	case s.told(l, r.Result, nil) && s.draw(2) == 0:
		s.gave(l, n, r.Source, r.Cancel(context.Background()))
	}
}

// joint takes units of two limiters, or of none.
func (s *Set) joint(one, other *neighbour, n int64) {
	asks := []hybridlimit.Ask{{Limiter: one.views[0], Key: one.key, N: n}, {Limiter: other.views[0], Key: other.key, N: n}}
	res, err := hybridlimit.AllowAll(context.Background(), asks...)
	if err != nil || !res.Allowed {
		s.told(one, hybridlimit.Result{}, err)
		return
	}
	s.told(one, asks[0].Result, nil)
	s.told(other, asks[1].Result, nil) // also if it is the same one: asks for one key add up
}

// fly starts a call, or ends the oldest one.
func (s *Set) fly(f *flight) {
	s.mu.Lock()
	var oldest hybridlimit.Permit
	if len(f.running) > 0 && s.rng.IntN(2) == 0 {
		oldest, f.running = f.running[0], f.running[1:]
	}
	s.mu.Unlock()
	oldest.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	p, res, err := f.limiter.AcquireN(ctx, "k", 1+int64(s.draw(most)))
	if err != nil && !over(err) {
		s.violate("%s: %v", f.name, err)
	}
	if res.Allowed {
		s.mu.Lock()
		f.running = append(f.running, p)
		s.mu.Unlock()
	}
}

// told books a result. It reports whether units were granted.
func (s *Set) told(l *neighbour, res hybridlimit.Result, err error) bool {
	s.took(l, res.Granted, res.Source, err)
	return err == nil && res.Granted > 0
}

// gave books units that a caller gave back. A verb that asks Redis about one call has no fallback.
func (s *Set) gave(l *neighbour, units int64, source hybridlimit.Source, err error) {
	if !errors.Is(err, hybridlimit.ErrUnavailable) {
		s.took(l, -units, source, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.books.Unsure += units
}

// took books units that were granted, or given back.
func (s *Set) took(l *neighbour, units int64, source hybridlimit.Source, err error) {
	if err != nil {
		if !over(err) {
			s.violate("%s: %v", l.name, err)
		}
		return
	}
	var fleet int64
	if source == hybridlimit.SourceFallback && units > 0 {
		fleet = max(1, l.views[0].Stats().Fleet)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.books.Granted += units
	if source == hybridlimit.SourceFallback {
		l.books.Fallback += units
	}
	if fleet > 0 {
		l.books.Share = max(l.books.Share, 1, (Units+fleet-1)/fleet)
	}
}

// over reports whether an error says only that a context has ended, or the hub, or that an algorithm has no such verb.
func over(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, hybridlimit.ErrClosed) || errors.Is(err, hybridlimit.ErrUnsupported)
}

func (s *Set) violate(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.violated) < 10 {
		s.violated = append(s.violated, fmt.Sprintf(format, args...))
	}
}

// Takeoff takes all permits, and says which it does not get: other processes must hold none.
func (s *Set) Takeoff() (broken []string) {
	for _, f := range s.flights {
		p, res, err := f.limiter.AcquireN(context.Background(), "k", Permits)
		if err != nil || !res.Allowed {
			broken = append(broken, fmt.Sprintf("%s: %d permits of %d are free: %v", f.name, res.Remaining, int64(Permits), err))
		}
		p.Release()
	}
	return broken
}

// Land ends all calls in flight.
func (s *Set) Land() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		for _, p := range f.running {
			p.Release()
		}
		f.running = nil
	}
}
