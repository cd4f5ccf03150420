package rls

import (
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
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
)

// metrics counts requests and decisions, as envoyproxy/ratelimit does.
type metrics struct {
	requests      atomic.Uint64
	serviceErrors atomic.Uint64
	redisErrors   atomic.Uint64
	loads         atomic.Uint64
	loadErrors    atomic.Uint64
	globalShadow  atomic.Uint64

	nearRatio float64 // the part of a limit above which a hit is near the limit

	rules   series[ruleCounts] // by metric name: "domain.key_value.key2"
	unknown counters           // by domain
	without counters           // by domain
}

func newMetrics(nearRatio float64) *metrics {
	return &metrics{
		nearRatio: nearRatio,
		rules:     series[ruleCounts]{most: maxSeries},
		unknown:   counters{series[atomic.Uint64]{most: maxDomains}},
		without:   counters{series[atomic.Uint64]{most: maxSeries}},
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

// add counts one decision about n units of a limit. Units above near, a part of the limit, are near it.
func (c *ruleCounts) add(n, limit int64, near float64, v *verdict) {
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
	from := int64(math.Floor(float64(limit) * near))
	if used := limit - v.remaining; used > from {
		c.near.Add(uint64(min(n, used-from)))
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

// Collector returns the metrics of the service for Prometheus, under the names that the exporter of
// envoyproxy/ratelimit gives them. README.md lists them. The metrics of the limiters are those of the hub: see
// hybrid.HubConfig.MeterProvider.
func (s *Service) Collector() prometheus.Collector { return collector{s.metrics} }

type collector struct{ m *metrics }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descTotal  = describe("ratelimit_service_rate_limit_total_hits", "Units asked of a rule.", "domain", "key1", "key2")
	descOver   = describe("ratelimit_service_rate_limit_over_limit", "Units that a rule denied.", "domain", "key1", "key2")
	descNear   = describe("ratelimit_service_rate_limit_near_limit", "Units that a rule admitted near its limit: above 80 % of it, or NEAR_LIMIT_RATIO.", "domain", "key1", "key2")
	descWithin = describe("ratelimit_service_rate_limit_within_limit", "Units that a rule admitted, or would have admitted if no other rule had denied.", "domain", "key1", "key2")
	descShadow = describe("ratelimit_service_rate_limit_shadow_mode", "Units that a rule with shadow_mode would have denied.", "domain", "key1", "key2")

	descUnknown = describe("ratelimit_service_rate_limit_domain_not_found", "Requests to a domain without rules.", "domain")
	descWithout = describe("ratelimit_service_descriptors_without_rule", "Descriptors of a known domain that no rule matches.", "domain")

	descRequests     = describe("ratelimit_service_total_requests", "Calls.", "grpc_method")
	descErrors       = describe("ratelimit_service_should_rate_limit_error", "Calls of ShouldRateLimit that ended with an error.", "err_type")
	descLoads        = describe("ratelimit_service_config_load_success", "Configurations that were put in force.")
	descLoadErrors   = describe("ratelimit_service_config_load_error", "Configurations that were refused.")
	descGlobalShadow = describe("ratelimit_service_global_shadow_mode", "Requests that only the global shadow mode admitted.")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descTotal, descOver, descNear, descWithin, descShadow, descUnknown, descWithout,
		descRequests, descErrors, descLoads, descLoadErrors, descGlobalShadow,
	} {
		to <- d
	}
}

// hitLabels are the labels of the counters of a rule. Levels below the second are added up, as in the exporter of
// envoyproxy/ratelimit.
type hitLabels struct{ domain, key1, key2 string }

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	sums := map[hitLabels]*[5]uint64{}
	c.m.rules.each(func(name string, r *ruleCounts) {
		l := labelsOf(name)
		sum := sums[l]
		if sum == nil {
			sum = new([5]uint64)
			sums[l] = sum
		}
		for i, v := range []uint64{r.total.Load(), r.over.Load(), r.near.Load(), r.within.Load(), r.shadow.Load()} {
			sum[i] += v
		}
	})
	for l, sum := range sums {
		for i, d := range []*prometheus.Desc{descTotal, descOver, descNear, descWithin, descShadow} {
			emit(d, sum[i], l.domain, l.key1, l.key2)
		}
	}
	unknown := map[string]uint64{}
	for domain, n := range c.m.unknown.values() {
		unknown[strings.ToValidUTF8(domain, "_")] += n
	}
	for domain, n := range unknown {
		emit(descUnknown, n, domain)
	}
	for domain, n := range c.m.without.values() {
		emit(descWithout, n, strings.ToValidUTF8(domain, "_"))
	}
	emit(descRequests, c.m.requests.Load(), "ShouldRateLimit")
	emit(descErrors, c.m.serviceErrors.Load(), "service_error")
	emit(descErrors, c.m.redisErrors.Load(), "redis_error")
	emit(descLoads, c.m.loads.Load())
	emit(descLoadErrors, c.m.loadErrors.Load())
	emit(descGlobalShadow, c.m.globalShadow.Load())
}

var ipv4 = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// labelsOf splits a metric name as the exporter of envoyproxy/ratelimit does: at dots that are not in an address.
func labelsOf(name string) hitLabels {
	name = strings.ToValidUTF8(strings.NewReplacer(":", "_", "|", "_").Replace(name), "_")
	name = ipv4.ReplaceAllStringFunc(name, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	parts := append(strings.SplitN(name, ".", 4), "", "")
	return hitLabels{parts[0], parts[1], parts[2]}
}
