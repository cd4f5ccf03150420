package server

import (
	"cmp"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
)

// environment reads variables of envoyproxy/ratelimit.
type environment struct {
	get      func(string) string
	bad      adapter.Violations
	warnings []string // about variables without effect
}

func (e *environment) bool(name string) bool {
	v := e.get(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		e.bad.Add(name, v, "must be true or false")
	}
	return b
}

// costs returns the default of -costs.
func (e *environment) costs() string {
	if e.bool("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
		return "asked"
	}
	return "booked"
}

func (e *environment) config() string {
	root := e.get("RUNTIME_ROOT")
	if root == "" {
		return ""
	}
	return filepath.Join(root, e.get("RUNTIME_SUBDIRECTORY"), cmp.Or(e.get("RUNTIME_APPDIRECTORY"), "config"))
}

func (e *environment) address(host, port, standard string) string {
	return net.JoinHostPort(e.get(host), cmp.Or(e.get(port), standard))
}

// grpc returns the default of -grpc.
func (e *environment) grpc() string {
	if path := e.get("GRPC_UDS"); path != "" {
		return "unix:" + path
	}
	return e.address("GRPC_HOST", "GRPC_PORT", "8081")
}

// metrics returns the default of -metrics.
func (e *environment) metrics() string {
	if e.bool("USE_PROMETHEUS") {
		return cmp.Or(e.get("PROMETHEUS_ADDR"), ":9090")
	}
	return e.get("PROMETHEUS_ADDR")
}

// debug returns the default of -debug. Without the variable there is no such server: it shows the rules.
func (e *environment) debug() string {
	if e.get("DEBUG_PORT") == "" {
		return ""
	}
	return e.address("DEBUG_HOST", "DEBUG_PORT", "")
}

func (e *environment) duration(name string, standard time.Duration) time.Duration {
	v := e.get(name)
	if v == "" {
		return standard
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		e.bad.Add(name, v, "must be a duration, such as 24h")
	}
	return d
}

func (e *environment) ratio(name string) float64 {
	v := e.get(name)
	if v == "" {
		return 0
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		e.bad.Add(name, v, "must be a number, such as 0.8")
	}
	return f
}

// others looks at variables that are no defaults of flags. A backend that is not there is an error: the counts would be
// somewhere else. Others are warnings. Those that tune a client of Redis have no meaning here, and are ignored.
func (e *environment) others() {
	if v := e.get("BACKEND_TYPE"); v != "" && v != "redis" {
		e.bad.Add("BACKEND_TYPE", v, "must be redis: there is no other backend")
	}
	for _, o := range []struct{ name, instead string }{
		{"REDIS_PERSECOND", "one Redis has all counts"},
		{"USE_STATSD", "metrics are for Prometheus: see -metrics"},
		{"USE_DOG_STATSD", "metrics are for Prometheus: see -metrics"},
		{"TRACING_ENABLED", "there are no traces"},
	} {
		if e.bool(o.name) {
			e.warnings = append(e.warnings, o.name+" has no effect: "+o.instead)
		}
	}
	for _, o := range []struct{ name, instead string }{
		{"PROMETHEUS_MAPPER_YAML", "the metrics have the names of the default mapper"},
		{"EXTRA_TAGS", "Prometheus adds labels to all series of a target by itself"},
	} {
		if e.get(o.name) != "" {
			e.warnings = append(e.warnings, o.name+" has no effect: "+o.instead)
		}
	}
}

func (e *environment) redis() Redis {
	r := Redis{
		URL: e.get("REDIS_URL"), Type: strings.ToLower(e.get("REDIS_TYPE")),
		auth: e.get("REDIS_AUTH"), sentinelAuth: e.get("REDIS_SENTINEL_AUTH"),
	}
	if e.bool("REDIS_TLS") {
		r.TLS = RedisTLS{
			CA: e.get("REDIS_TLS_CACERT"), Cert: e.get("REDIS_TLS_CLIENT_CERT"), Key: e.get("REDIS_TLS_CLIENT_KEY"),
			always: true, anyName: e.bool("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"),
		}
	}
	return r
}
