package server

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/lua"
	"github.com/hybridlimit/hybridlimit/rls"
)

// Settings are the flags of the program.
type Settings struct {
	Config   string        // a file, or a directory
	Merge    bool          // files may share a domain
	Poll     time.Duration // between two looks at the files
	XDS      XDS           // instead of Config
	NoWait   bool          // start without valid rules, and be ready at once
	Domain   bool          // not ready without a domain
	GRPC     string        // address, or unix:PATH
	Age      Age           // of connections
	HTTP     string        // address; empty: none
	Metrics  string        // address of a server for metrics only; empty: none
	Path     string        // of the metrics there
	Debug    string        // address; empty: none
	Timed    bool          // a histogram of the times of answers
	Reflect  bool          // gRPC reflection
	Quotas   bool          // the rate limit quota service
	Redis    Redis
	Prefix   string
	Tags     int // 0: by the Redis, see tags
	Replicas int
	Drain    time.Duration // for the calls in flight at the end
	ReadyIn  time.Duration // after which the server is ready without Redis
	TLS      TLS
	Log      Log
	Service  rls.Options

	Warnings []string // about variables of the environment without effect

	SyncTimeout time.Duration // of hybrid.HubConfig; zero: its default. No flag sets it
}

// Age bounds the life of a gRPC connection, so that a client that balances connections finds new replicas. Zero: no bound.
type Age struct{ Most, Grace time.Duration }

// Log is the log of the program.
type Log struct {
	Level slog.Level
	JSON  bool
}

// TLS names the files of the gRPC server's certificate. Empty: no TLS.
type TLS struct {
	Cert, Key, ClientCA string
	ClientName          string // that the certificates of clients must have; empty: any
}

// fails are the values of -fail.
var fails = map[string]hybrid.Fallback{
	"share": hybrid.FallbackShare, "full": hybrid.FallbackFull, "allow": hybrid.FallbackAllowAll, "deny": hybrid.FallbackDenyAll,
	"error": hybrid.FallbackShare,
}

// levels are the values of -log-level, and the other words that envoyproxy/ratelimit has for LOG_LEVEL.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	"trace": slog.LevelDebug, "warning": slog.LevelWarn, "fatal": slog.LevelError, "panic": slog.LevelError,
}

const usage = `hybridlimit-rls is a rate limit service for Envoy.

  hybridlimit-rls -config DIR [-redis URL] [flags]
  hybridlimit-rls -xds HOST:PORT [-redis URL] [flags]

It reads the configuration files of envoyproxy/ratelimit, or takes their content from a
control plane. Without -redis it keeps the counts in its own memory: then replicas do not
share limits, and a restart forgets them.

Variables of envoyproxy/ratelimit are the defaults of flags: RUNTIME_ROOT,
RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY (-config), MERGE_DOMAIN_CONFIG
(-merge-domains), REDIS_URL, REDIS_TYPE, REDIS_AUTH, REDIS_TLS and REDIS_SENTINEL_AUTH
(-redis), REDIS_TLS_CACERT, REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY (-redis-...),
REDIS_TLS_SKIP_HOSTNAME_VERIFICATION, CACHE_KEY_PREFIX (-prefix), GRPC_HOST and GRPC_PORT
or GRPC_UDS (-grpc), GRPC_MAX_CONNECTION_AGE and GRPC_MAX_CONNECTION_AGE_GRACE
(-max-connection-age...), HOST and PORT (-http), USE_PROMETHEUS, PROMETHEUS_ADDR and
PROMETHEUS_PATH (-metrics, -metrics-path, -response-times), DEBUG_HOST and DEBUG_PORT
(-debug), LOG_LEVEL and LOG_FORMAT (-log-...), SHADOW_MODE (-shadow), QUOTA_MODE (-quota),
RESPONSE_DYNAMIC_METADATA (-metadata), NEAR_LIMIT_RATIO (-near-ratio),
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT (-costs asked),
FORCE_START_WITHOUT_INITIAL_CONFIG (-start-without-rules), CONFIG_TYPE=GRPC_XDS_SOTW with
CONFIG_GRPC_XDS_SERVER_URL, CONFIG_GRPC_XDS_NODE_ID, CONFIG_GRPC_XDS_NODE_METADATA,
CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS, CONFIG_GRPC_XDS_SERVER_USE_TLS,
CONFIG_GRPC_XDS_CLIENT_TLS_CERT, CONFIG_GRPC_XDS_CLIENT_TLS_KEY,
CONFIG_GRPC_XDS_SERVER_TLS_CACERT, CONFIG_GRPC_XDS_SERVER_TLS_SAN and
XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES (-xds, -xds-...),
HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED (-need-domain),
LIMIT_RESPONSE_HEADERS_ENABLED, LIMIT_LIMIT_HEADER, LIMIT_REMAINING_HEADER and
LIMIT_RESET_HEADER (-headers), GRPC_SERVER_USE_TLS, GRPC_SERVER_TLS_CERT,
GRPC_SERVER_TLS_KEY, GRPC_CLIENT_TLS_CACERT and GRPC_CLIENT_TLS_SAN (-tls-...).
BACKEND_TYPE must be redis. The log names other variables that are set and have no effect.

Flags:
`

// ParseFlags reads the flags and their defaults from the environment. It writes help and the errors of flags to out.
// The error is flag.ErrHelp if help was asked for.
func ParseFlags(args []string, getenv func(string) string, out io.Writer) (Settings, error) {
	e := environment{get: getenv}
	var s Settings
	fs := flag.NewFlagSet("hybridlimit-rls", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.Usage = func() {
		fmt.Fprint(out, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&s.Config, "config", e.config(), "`file`, or directory: all files in it and in its directories count, but no name that begins with a dot")
	fs.BoolVar(&s.Merge, "merge-domains", e.bool("MERGE_DOMAIN_CONFIG"), "files may share a domain")
	fs.DurationVar(&s.Poll, "poll", 2*time.Second, "time between two looks at the files")
	s.XDS = e.xds()
	fs.StringVar(&s.XDS.Address, "xds", s.XDS.Address, "`address` of a control plane (xDS, an aggregated stream) that pushes the rules, instead of -config")
	fs.StringVar(&s.XDS.Node, "xds-node", s.XDS.Node, "`id` of the node that the control plane sees")
	fs.BoolVar(&s.XDS.UseTLS, "xds-tls", s.XDS.UseTLS, "use TLS with the authorities of the system; the files below use it too")
	fs.StringVar(&s.XDS.TLS.CA, "xds-ca", s.XDS.TLS.CA, "`file` with the authorities that may sign the certificate of the control plane")
	fs.StringVar(&s.XDS.TLS.Cert, "xds-cert", s.XDS.TLS.Cert, "`file` with the certificate for the control plane; each new connection reads it again")
	fs.StringVar(&s.XDS.TLS.Key, "xds-key", s.XDS.TLS.Key, "`file` with its private key")
	fs.StringVar(&s.XDS.Name, "xds-name", s.XDS.Name, "`name` that the certificate of the control plane must have; empty: that of -xds")
	fs.IntVar(&s.XDS.MaxBytes, "xds-max-bytes", s.XDS.MaxBytes, "size of the largest push, in bytes")
	fs.BoolVar(&s.NoWait, "start-without-rules", e.bool("FORCE_START_WITHOUT_INITIAL_CONFIG"), "start although there are no rules yet, and be ready; calls have the gRPC error Unavailable until there are rules")
	fs.BoolVar(&s.Domain, "need-domain", e.bool("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"), "be ready only while there is a domain")
	fs.StringVar(&s.GRPC, "grpc", e.grpc(), "`address` of the gRPC service, or unix:PATH for a socket")
	fs.DurationVar(&s.Age.Most, "max-connection-age", e.duration("GRPC_MAX_CONNECTION_AGE", 24*time.Hour), "time after which a gRPC client is asked to connect anew, so that it finds new replicas; 0: never")
	fs.DurationVar(&s.Age.Grace, "max-connection-age-grace", e.duration("GRPC_MAX_CONNECTION_AGE_GRACE", time.Hour), "time after which its calls are then cancelled; 0: never")
	fs.BoolVar(&s.Reflect, "reflection", false, "serve gRPC reflection, for grpcurl")
	fs.BoolVar(&s.Quotas, "rlqs", false, "serve rate limit quotas too (RLQS): Envoy decides by itself, by an assignment")
	fs.StringVar(&s.HTTP, "http", e.address("HOST", "PORT", "8080"), "`address` of /healthcheck, /metrics, /json and /rlconfig; empty: none")
	prometheus := e.bool("USE_PROMETHEUS")
	fs.StringVar(&s.Metrics, "metrics", e.metrics(prometheus), "`address` of a second server for the metrics; empty: none")
	fs.StringVar(&s.Path, "metrics-path", cmp.Or(e.get("PROMETHEUS_PATH"), "/metrics"), "`path` of the metrics there")
	fs.BoolVar(&s.Timed, "response-times", prometheus, "measure the times of answers in a histogram, which reads the clock twice a call")
	fs.StringVar(&s.Debug, "debug", e.debug(), "`address` of /rlconfig and /debug/pprof/; empty: none")
	level := fs.String("log-level", cmp.Or(e.get("LOG_LEVEL"), "info"), "least `level` of the lines in the log: debug, info, warn or error")
	format := fs.String("log-format", cmp.Or(e.get("LOG_FORMAT"), "text"), "`format` of the log: text or json")
	s.Redis = e.redis()
	fs.StringVar(&s.Redis.URL, "redis", s.Redis.URL, "`URL` of Redis, for example redis://user:password@host:6379/0; rediss:// for TLS, unix:// for a socket; several addresses of a cluster with commas; empty: memory of this process")
	fs.StringVar(&s.Redis.Type, "redis-type", s.Redis.Type, "single, cluster, or sentinel (then the URL is the name of the master and the addresses of the sentinels, with commas); empty: cluster if there are several addresses")
	fs.StringVar(&s.Redis.TLS.CA, "redis-ca", s.Redis.TLS.CA, "`file` with the authorities that may sign the certificate of Redis; empty: those of the system")
	fs.StringVar(&s.Redis.TLS.Cert, "redis-cert", s.Redis.TLS.Cert, "`file` with the certificate for Redis, if Redis requires one; each new connection reads it again")
	fs.StringVar(&s.Redis.TLS.Key, "redis-key", s.Redis.TLS.Key, "`file` with its private key")
	fs.StringVar(&s.Prefix, "prefix", e.get("CACHE_KEY_PREFIX"), "beginning of all keys in Redis, [A-Za-z0-9_.-]; empty: hl")
	fs.IntVar(&s.Tags, "tags", 0, "number of parts that the keys are spread over, each on one master of a cluster; the same for all replicas, and another number begins with unused counts; 0: 16 for a cluster, 1 otherwise")
	fs.IntVar(&s.Replicas, "replicas", 0, "number of replicas, until it has been measured; it decides the share of each if Redis is down at the start")
	fs.IntVar(&s.Service.Limiter.MaxKeys, "max-keys", 0, "keys in memory, for each domain and algorithm; 0: 100000")
	fail := fs.String("fail", "share", "decisions without Redis: `share` (limit/replicas each), full (the limit each), allow, deny, or error (gRPC Unavailable)")
	fs.BoolVar(&s.Service.Shadow, "shadow", e.bool("SHADOW_MODE"), "answer OK always; statuses and metrics tell the limits that are exceeded")
	fs.Float64Var(&s.Service.NearRatio, "near-ratio", e.ratio("NEAR_LIMIT_RATIO"), "part of a limit above which units count in the metric near_limit, above 0 and up to 1; 0: 0.8")
	fs.BoolVar(&s.Service.Quota, "quota", e.bool("QUOTA_MODE"), "treat all rules as rules with quota_mode")
	fs.BoolVar(&s.Service.StrictCompat, "strict-compat", false, "ask each rule on its own, so that a denied request counts for the rules that do not deny it")
	costs := fs.String("costs", e.costs(), "named costs, which are a hits_addend of a descriptor above 0 or of the request above 1: `booked` at each rule, whatever others say, or asked: all rules or none")
	sent := "draft"
	if e.bool("LIMIT_RESPONSE_HEADERS_ENABLED") {
		sent += ",legacy"
	}
	headers := fs.String("headers", sent, "headers for the client, with commas: `draft` (RateLimit, RateLimit-Policy), legacy (RateLimit-Limit, -Remaining, -Reset), or none")
	fs.BoolVar(&s.Service.Metadata, "metadata", e.bool("RESPONSE_DYNAMIC_METADATA"), "send dynamic metadata to Envoy")
	fs.DurationVar(&s.Drain, "drain", 10*time.Second, "time for calls in flight after SIGTERM")
	fs.DurationVar(&s.ReadyIn, "ready-in", 5*time.Second, "time after which the server is ready although Redis has not answered")
	if e.bool("GRPC_SERVER_USE_TLS") {
		s.TLS = TLS{
			Cert: e.get("GRPC_SERVER_TLS_CERT"), Key: e.get("GRPC_SERVER_TLS_KEY"),
			ClientCA: e.get("GRPC_CLIENT_TLS_CACERT"), ClientName: e.get("GRPC_CLIENT_TLS_SAN"),
		}
	}
	fs.StringVar(&s.TLS.Cert, "tls-cert", s.TLS.Cert, "`file` with the certificates of the gRPC server; files are read again when they change")
	fs.StringVar(&s.TLS.Key, "tls-key", s.TLS.Key, "`file` with its private key")
	fs.StringVar(&s.TLS.ClientCA, "tls-client-ca", s.TLS.ClientCA, "`file` with the authorities of clients; then each client needs a certificate")
	fs.StringVar(&s.TLS.ClientName, "tls-client-name", s.TLS.ClientName, "`name` (DNS name or IP address) that the certificate of each client must have; empty: any")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	var ok bool
	o := &s.Service
	o.LimitHeader, o.RemainingHeader, o.ResetHeader = getenv("LIMIT_LIMIT_HEADER"), getenv("LIMIT_REMAINING_HEADER"), getenv("LIMIT_RESET_HEADER")
	e.others()
	bad := e.bad
	s.Warnings = e.warnings
	if s.Log.Level, ok = levels[strings.ToLower(*level)]; !ok {
		bad.Add("-log-level", *level, "must be debug, info, warn or error")
	}
	if s.Log.JSON = strings.EqualFold(*format, "json"); !s.Log.JSON && !strings.EqualFold(*format, "text") {
		bad.Add("-log-format", *format, "must be text or json")
	}
	if fs.NArg() > 0 {
		bad.Add("arguments", strings.Join(fs.Args(), " "), "are not expected")
	}
	if o.Limiter.Fallback, ok = fails[*fail]; !ok {
		bad.Add("-fail", *fail, "must be share, full, allow, deny or error")
	}
	o.FailError = *fail == "error"
	if o.AskCosts = *costs == "asked"; *costs != "booked" && *costs != "asked" {
		bad.Add("-costs", *costs, "must be booked or asked")
	}
	o.NoDraftHeaders = true
	for _, h := range strings.Split(*headers, ",") {
		switch h {
		case "draft":
			o.NoDraftHeaders = false
		case "legacy":
			o.LegacyHeaders = true
		case "none", "":
		default:
			bad.Add("-headers", h, "must be draft, legacy or none")
		}
	}
	s.check(&bad)
	return s, bad.Err("hybridlimit-rls")
}

func (s *Settings) check(bad *adapter.Violations) {
	refuse := func(wrong bool, flag string, value any, problem string) {
		if wrong {
			bad.Add(flag, value, problem)
		}
	}
	t := s.TLS
	refuse(s.Config == "" && s.XDS.Address == "", "-config", s.Config, "is required, or -xds")
	refuse(s.Config != "" && s.XDS.Address != "", "-config, -xds", s.Config+", "+s.XDS.Address, "must not be set together: rules come from one place")
	refuse(s.Poll < 100*time.Millisecond, "-poll", s.Poll, "must be at least 100ms")
	refuse(s.GRPC == "", "-grpc", s.GRPC, "is required")
	refuse(s.Age.Most < 0 || s.Age.Grace < 0, "-max-connection-age, -max-connection-age-grace", fmt.Sprint(s.Age.Most, ", ", s.Age.Grace), "must not be negative")
	refuse(s.Metrics != "" && (!strings.HasPrefix(s.Path, "/") || path.Clean(s.Path) != s.Path || strings.ContainsAny(s.Path, "{} ")), "-metrics-path", s.Path, "must be a path such as /metrics, without braces and spaces")
	for _, a := range []struct{ flag, address string }{{"-grpc", s.GRPC}, {"-http", s.HTTP}, {"-metrics", s.Metrics}, {"-debug", s.Debug}} {
		socket, ok := strings.CutPrefix(a.address, "unix:")
		refuse(ok && strings.Trim(socket, "/") == "", a.flag, a.address, "must have the path of a socket after unix:")
	}
	near := s.Service.NearRatio
	refuse(!(near >= 0 && near <= 1), "-near-ratio", near, "must be 0 to 1")
	refuse(s.Prefix != "" && !adapter.CheckName(s.Prefix), "-prefix", s.Prefix, "must match [A-Za-z0-9_.-]{1,128}")
	refuse(s.Tags < 0 || s.Tags > lua.MaxTags, "-tags", s.Tags, fmt.Sprintf("must be 0 to %d", lua.MaxTags))
	refuse(s.Replicas < 0, "-replicas", s.Replicas, "must not be negative")
	refuse(s.Service.Limiter.MaxKeys < 0, "-max-keys", s.Service.Limiter.MaxKeys, "must not be negative")
	refuse(s.Drain < 0 || s.ReadyIn < 0, "-drain, -ready-in", fmt.Sprint(s.Drain, ", ", s.ReadyIn), "must not be negative")
	refuse((t.Cert == "") != (t.Key == "") || t.ClientCA != "" && t.Cert == "",
		"-tls-cert, -tls-key, -tls-client-ca", fmt.Sprintf("%q", t), "must be set together; the last one may be empty")
	refuse(t.ClientName != "" && t.ClientCA == "", "-tls-client-name", t.ClientName, "needs -tls-client-ca")
	s.Redis.check(bad)
	s.XDS.check(bad)
}

// tags returns the number of tags of the hub. Requests for one tag share messages while one is under way. One master
// needs one tag, so that most of them do.
func (s *Settings) tags() int {
	if s.Tags == 0 && s.Redis.cluster() {
		return lua.DefaultTags
	}
	return max(s.Tags, 1)
}
