package rlqs

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

const (
	// takeFor bounds the time that a report waits for Redis, for each question.
	takeFor = time.Second
	// tries is the number of ever smaller requests for slices that others take at the same time.
	tries = 4
	// unreached is the limit of the counts, which limit nothing.
	unreached = 1 << 44
)

// fleet has the counts of all buckets, in all replicas.
type fleet struct {
	slices *hybrid.ConcurrencyLimiter // the slices that Envoys have
	envoys *hybrid.ConcurrencyLimiter // Envoys that have the bucket
	needs  *hybrid.ConcurrencyLimiter // what they need, by weights

	made     time.Time
	answered atomic.Int64 // ns from made to the last answer of Redis; 0: none yet
}

// Without Redis, each replica keeps the slices that it has, so what seems to be free may be with others. After
// lessAfter, it goes down to its share. After shareAfter all Envoys have heard of that, and it hands out its share.
const (
	lessAfter  = 5 * time.Second
	shareAfter = lessAfter + leastTTL + 5*time.Second
)

// away returns the time since the last answer of Redis. It is long if there was none yet.
func (f *fleet) away() time.Duration {
	at := f.answered.Load()
	if at == 0 {
		return time.Hour
	}
	return time.Since(f.made) - time.Duration(at) // no clock step changes it
}

// newFleet makes the limiters of a hub.
func newFleet(hub *hybrid.Hub) (*fleet, error) {
	of, err := hub.Concurrency(hybridlimit.Concurrent(allSlices), hybrid.ConcurrencyConfig{Name: "rlqs.slices"})
	if err != nil {
		return nil, err
	}
	count := func(name string) (*hybrid.ConcurrencyLimiter, error) {
		return hub.Concurrency(hybridlimit.Concurrent(unreached), hybrid.ConcurrencyConfig{Name: name, Mode: hybrid.ModeExact})
	}
	envoys, err := count("rlqs.envoys")
	if err != nil {
		return nil, errors.Join(err, of.Close())
	}
	needs, err := count("rlqs.needs")
	if err != nil {
		return nil, errors.Join(err, of.Close(), envoys.Close())
	}
	return &fleet{slices: of, envoys: envoys, needs: needs, made: time.Now()}, nil
}

// close ends the limiters.
func (f *fleet) close() error {
	return errors.Join(f.slices.Close(), f.envoys.Close(), f.needs.Close())
}

// share is what one stream has of one bucket. It is the pool of its assignment.
type share struct {
	fleet   *fleet
	key     string
	permits []chunk // of slices; the largest first
	here    seat    // this Envoy has the bucket
	asking  seat    // its need
	err     error   // of the last question that had no answer
	away    bool    // the fallback gave the last answer
}

// chunk is a permit for n slices, a power of two.
type chunk struct {
	permit hybridlimit.Permit
	n      int64
}

// acquire asks a limiter. An error is kept for the log.
func (s *share) acquire(l *hybrid.ConcurrencyLimiter, n int64) (p hybridlimit.Permit, res hybridlimit.Result) {
	ctx, cancel := context.WithTimeout(context.Background(), takeFor)
	defer cancel()
	p, res, err := l.AcquireN(ctx, s.key, n)
	s.away = res.Source == hybridlimit.SourceFallback || res.Source == hybridlimit.SourceTimeout
	switch {
	case err != nil:
		s.err = err
	case !s.away:
		s.fleet.answered.Store(max(1, int64(time.Since(s.fleet.made))))
	}
	return p, res
}

// Take implements pool. In the first time of an outage it takes nothing. It costs a message, or several if others
// take slices at the same time.
func (s *share) Take(n int64) (taken int64) {
	for range tries {
		if n < 1 {
			return 0
		}
		permit, res := s.acquire(s.fleet.slices, n)
		if s.away && s.fleet.away() < shareAfter {
			permit.Release()
			return 0
		}
		if res.Allowed {
			permit.Release() // this process has them now, and gives them out in parts, without a message
			return s.inChunks(n)
		}
		n = min(n/2, res.Remaining)
	}
	return 0
}

// inChunks takes slices in permits of up to an eighth of n: a permit is given back as a whole, and a share must get
// smaller in small steps. The first slice is a permit of its own, with which an Envoy without requests is left.
func (s *share) inChunks(n int64) (taken int64) {
	size := int64(1)
	for taken < n {
		permit, res := s.acquire(s.fleet.slices, size)
		if !res.Allowed {
			break
		}
		s.permits, taken = append(s.permits, chunk{permit, size}), taken+size
		size = powerOfTwo(min(n/8, n-taken))
	}
	slices.SortStableFunc(s.permits, func(a, b chunk) int { return int(b.n - a.n) })
	return taken
}

// powerOfTwo returns the largest one up to n, and 1 for an n below 1.
func powerOfTwo(n int64) int64 { return 1 << (bits.Len64(uint64(max(1, n))) - 1) }

// Part implements pool. The sizes of permits are powers of two, so the largest that fit first are the best choice.
func (s *share) Part(n int64) (part int64) {
	for _, c := range s.permits {
		if c.n <= n-part {
			part += c.n
		}
	}
	return part
}

// Give implements pool.
func (s *share) Give(n int64) {
	s.permits = slices.DeleteFunc(s.permits, func(c chunk) bool {
		if c.n > n {
			return false
		}
		c.permit.Release()
		n -= c.n
		return true
	})
}

// Most implements pool.
func (s *share) Most(held int64) int64 {
	if !s.away || s.fleet.away() < lessAfter {
		return held
	}
	i, err := s.fleet.slices.Inspect(context.Background(), s.key)
	if err != nil || i.Running <= i.Share {
		return held
	}
	return held * i.Share / i.Running
}

// Envoys implements pool. It costs a message.
func (s *share) Envoys() int64 {
	take := int64(0)
	if s.here.held == 0 {
		take = weights[wants]
	}
	return max(1, s.here.ask(s, s.fleet.envoys, take)/weights[wants])
}

// Others implements pool. It costs a message.
func (s *share) Others() need {
	switch used := s.asking.ask(s, s.fleet.needs, 0) - s.asking.held; {
	case used >= weights[starves]:
		return starves
	case used >= weights[wants]:
		return wants
	default:
		return nothing
	}
}

// Tell implements pool. It costs a message if the need is greater than before.
func (s *share) Tell(n need) {
	if weights[n] != s.asking.held {
		s.asking.leave()
		if n > nothing {
			s.asking.ask(s, s.fleet.needs, weights[n])
		}
	}
}

// leave stops counting this Envoy.
func (s *share) leave() {
	s.asking.leave()
	s.here.leave()
}

// weights are the numbers of permits that tell a need. A question takes one permit for a moment, and less than 256
// questions are asked at the same time. So the sum of all tells whether somebody wants, and whether somebody starves.
var weights = [...]int64{nothing: 0, wants: 1 << 8, starves: 1 << 26}

// seat is permits that count one Envoy.
type seat struct {
	permit hybridlimit.Permit
	held   int64 // permits
}

// ask returns the number of permits that the fleet uses. If take is not 0, the seat takes so many first.
func (t *seat) ask(s *share, l *hybrid.ConcurrencyLimiter, take int64) int64 {
	permit, res := s.acquire(l, max(1, take))
	if !res.Allowed {
		return 0
	}
	if take > 0 {
		t.permit, t.held = permit, take
	} else {
		defer permit.Release()
	}
	if res.Source == hybridlimit.SourceFallback { // it knows this process
		return l.Running(s.key)
	}
	return unreached - res.Remaining
}

// leave gives the permits back.
func (t *seat) leave() {
	t.permit.Release()
	*t = seat{}
}
