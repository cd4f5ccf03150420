package rls

import (
	"math"
	"sync"
	"sync/atomic"
)

const (
	// maxSeries bounds the names under which rules count. With detailed_metric and value_to_metric the values of
	// requests make names.
	maxSeries = 10_000
	// maxDomains bounds the unknown domains that have a counter of their own.
	maxDomains = 100
	// maxName is the longest name, in bytes.
	maxName = 512
	// other is the name of all that is above these bounds.
	other = "other"
	// nearRatio is the fraction of a limit above which a hit is near the limit.
	nearRatio = 0.8
)

// metrics counts requests and decisions, as envoyproxy/ratelimit does.
type metrics struct {
	requests      atomic.Uint64
	serviceErrors atomic.Uint64
	redisErrors   atomic.Uint64
	loads         atomic.Uint64
	loadErrors    atomic.Uint64
	globalShadow  atomic.Uint64

	rules   series[ruleCounts] // by metric name: "domain.key_value.key2"
	unknown counters           // by domain
	without counters           // by domain
}

func newMetrics() *metrics {
	return &metrics{
		rules:   series[ruleCounts]{most: maxSeries},
		unknown: counters{series[atomic.Uint64]{most: maxDomains}},
		without: counters{series[atomic.Uint64]{most: maxSeries}},
	}
}

// rule returns the counters of a metric name.
func (m *metrics) rule(name string) *ruleCounts { return m.rules.get(name) }

// override returns the counters of the limits that requests to a domain bring. The values of the requests make no
// series.
func (m *metrics) override(domain string) *ruleCounts { return m.rules.get(domain + ".override") }

// unknownDomain counts a request to a domain without rules.
func (m *metrics) unknownDomain(domain string) { m.unknown.get(domain).Add(1) }

// ruleCounts counts the hits of one rule, in units.
type ruleCounts struct {
	total, over, near, within, shadow atomic.Uint64
}

// add counts one decision about n units of a limit.
func (c *ruleCounts) add(n, limit int64, v *verdict) {
	hits := uint64(max(0, n))
	c.total.Add(hits)
	if v.over {
		c.over.Add(hits)
		if v.shadow {
			c.shadow.Add(hits)
		}
		return
	}
	c.within.Add(hits)
	near := int64(math.Floor(float64(limit) * nearRatio))
	if used := limit - v.remaining; used > near {
		c.near.Add(uint64(min(n, used-near)))
	}
}

// series has a bounded number of values by name. The last name is other.
type series[T any] struct {
	most  int
	all   sync.Map // string to *T
	count atomic.Int64
	mu    sync.Mutex // held while a name is added
}

// counters are plain counters by name.
type counters struct{ series[atomic.Uint64] }

// get returns the value of a name.
func (s *series[T]) get(name string) *T {
	if v, ok := s.all.Load(name); ok {
		return v.(*T)
	}
	if len(name) > maxName {
		name = other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.all.Load(name); ok {
		return v.(*T)
	}
	if s.count.Load() >= int64(s.most) {
		name = other
		if v, ok := s.all.Load(name); ok {
			return v.(*T)
		}
	}
	v := new(T)
	s.all.Store(name, v)
	s.count.Add(1)
	return v
}

// each calls f for all names, in no order.
func (s *series[T]) each(f func(name string, v *T)) {
	s.all.Range(func(name, v any) bool {
		f(name.(string), v.(*T))
		return true
	})
}

// values returns the numbers of a series of counters.
func (s *counters) values() map[string]uint64 {
	all := map[string]uint64{}
	s.each(func(name string, v *atomic.Uint64) { all[name] = v.Load() })
	return all
}
