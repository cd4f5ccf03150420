package server

import (
	"cmp"
	"fmt"
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
	if root == "" || strings.EqualFold(e.get("CONFIG_TYPE"), xdsType) {
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
func (e *environment) metrics(use bool) string {
	switch {
	case use:
		return cmp.Or(e.get("PROMETHEUS_ADDR"), ":9090")
	case e.get("USE_PROMETHEUS") != "":
		return ""
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

// xdsType is the CONFIG_TYPE of rules by xDS.
const xdsType = "GRPC_XDS_SOTW"

// xds returns the defaults of the flags -xds.
func (e *environment) xds() XDS {
	x := XDS{Node: "default", MaxBytes: 4 << 20}
	switch kind := e.get("CONFIG_TYPE"); {
	case strings.EqualFold(kind, xdsType):
	case kind == "" || strings.EqualFold(kind, "FILE"):
		return x
	default:
		e.bad.Add("CONFIG_TYPE", kind, "must be FILE or "+xdsType)
		return x
	}
	x.Address = cmp.Or(e.get("CONFIG_GRPC_XDS_SERVER_URL"), "localhost:18000")
	x.Node = cmp.Or(e.get("CONFIG_GRPC_XDS_NODE_ID"), x.Node)
	x.Metadata = e.pairs("CONFIG_GRPC_XDS_NODE_METADATA", "=")
	x.Header = e.pairs("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ":")
	if n := e.get("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"); n != "" && n != "0" {
		var err error
		if x.MaxBytes, err = strconv.Atoi(n); err != nil {
			e.bad.Add("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", n, "must be a number")
		}
	}
	if x.UseTLS = e.bool("CONFIG_GRPC_XDS_SERVER_USE_TLS"); x.UseTLS {
		x.TLS = ClientTLS{
			CA: e.get("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"), Cert: e.get("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"), Key: e.get("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
		}
		x.Name = e.get("CONFIG_GRPC_XDS_SERVER_TLS_SAN")
	}
	return x
}

// pairs reads names and values, with a sign between them and commas between pairs.
func (e *environment) pairs(name, sign string) map[string]string {
	text := e.get(name)
	if text == "" {
		return nil
	}
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, sign)
		if key = strings.TrimSpace(key); !ok || key == "" {
			e.warnings = append(e.warnings, fmt.Sprintf("%s has a part without effect: it must be name%svalue, several with commas", name, sign))
			continue
		}
		all[key] = value
	}
	return all
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
		{"LOCAL_CACHE_SIZE_IN_BYTES", "a replica decides in memory"},
		{"EXTRA_TAGS", "Prometheus adds labels to all series of a target by itself"},
	} {
		if v := e.get(o.name); v != "" && v != "0" {
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
		r.TLS = ClientTLS{
			CA: e.get("REDIS_TLS_CACERT"), Cert: e.get("REDIS_TLS_CLIENT_CERT"), Key: e.get("REDIS_TLS_CLIENT_KEY"),
			always: true, anyName: e.bool("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"),
		}
	}
	return r
}
