package rls

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The counters have the names of envoyproxy/ratelimit.
func TestCollector(t *testing.T) {
	s := newService(t, strings.Replace(modeRules, "key: many", "key: many\n    detailed_metric: true", 1), Options{})
	for range 3 {
		ask(t, s, request("shop", desc("user", "a")))
	}
	ask(t, s, hitsOf(request("shop", desc("many", "10.0.0.1")), 9))
	ask(t, s, request("shop", desc("dark", "a")))
	ask(t, s, request("shop", desc("dark", "a"), desc("unknown", "")))
	ask(t, s, request("nowhere", desc("dark", "a")))
	ask(t, s, request(""))
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.Collector())
	want := `
ratelimit_service_config_load_error 0
ratelimit_service_config_load_success 1
ratelimit_service_descriptors_without_rule{domain="shop"} 1
ratelimit_service_rate_limit_domain_not_found{domain="nowhere"} 1
ratelimit_service_rate_limit_near_limit{domain="shop",key1="dark",key2=""} 1
ratelimit_service_rate_limit_near_limit{domain="shop",key1="many_10_0_0_1",key2=""} 1
ratelimit_service_rate_limit_near_limit{domain="shop",key1="user",key2=""} 1
ratelimit_service_rate_limit_over_limit{domain="shop",key1="dark",key2=""} 1
ratelimit_service_rate_limit_over_limit{domain="shop",key1="user",key2=""} 1
ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="dark",key2=""} 1
ratelimit_service_rate_limit_total_hits{domain="shop",key1="many_10_0_0_1",key2=""} 9
ratelimit_service_rate_limit_total_hits{domain="shop",key1="user",key2=""} 3
ratelimit_service_rate_limit_within_limit{domain="shop",key1="user",key2=""} 2
ratelimit_service_should_rate_limit_error{err_type="service_error"} 1
ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 8
`
	page := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	text := page.Body.String()
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// Values of requests make a bounded number of series.
func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics(defaultNearRatio)
	for i := range maxSeries + 100 {
		m.rule(fmt.Sprint(i)).total.Add(1)
		m.unknownDomain(fmt.Sprint(i))
	}
	m.rule(strings.Repeat("x", maxName+1)).total.Add(1)
	rules, domains := 0, 0
	m.rules.each(func(string, *ruleCounts) { rules++ })
	for range m.unknown.values() {
		domains++
	}
	if rules != maxSeries+1 || domains != maxDomains+1 || m.rule(other).total.Load() != 101 {
		t.Errorf("%d rules, %d domains, %d others", rules, domains, m.rule(other).total.Load())
	}
}
