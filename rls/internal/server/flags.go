package server

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/lua"
	"github.com/hybridlimit/hybridlimit/rls"
)

// Settings are the flags of the program.
type Settings struct {
	Config   string        // a file, or a directory of *.yaml and *.yml
	Merge    bool          // files may share a domain
	Poll     time.Duration // between two looks at the files
	GRPC     string        // address; empty: none
	HTTP     string        // address; empty: none
	Redis    Redis
	Prefix   string
	Tags     int // 0: by the Redis, see tags
	Replicas int
	Drain    time.Duration // for the calls in flight at the end
	ReadyIn  time.Duration // after which the server is ready without Redis
	TLS      TLS
	Service  rls.Options

	SyncTimeout time.Duration // of hybrid.HubConfig; zero: its default. No flag sets it
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

const usage = `hybridlimit-rls is a rate limit service for Envoy.

  hybridlimit-rls -config DIR [-redis URL] [flags]

It reads the configuration files of envoyproxy/ratelimit. Without -redis it keeps the
counts in its own memory: then replicas do not share limits, and a restart forgets them.

Variables of envoyproxy/ratelimit are the defaults of flags: RUNTIME_ROOT,
RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY (-config), MERGE_DOMAIN_CONFIG
(-merge-domains), REDIS_URL, REDIS_TYPE, REDIS_AUTH, REDIS_TLS and REDIS_SENTINEL_AUTH
(-redis), REDIS_TLS_CACERT, REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY (-redis-...),
REDIS_TLS_SKIP_HOSTNAME_VERIFICATION, CACHE_KEY_PREFIX (-prefix), GRPC_HOST and GRPC_PORT (-grpc), HOST and PORT
(-http), SHADOW_MODE (-shadow), QUOTA_MODE (-quota), RESPONSE_DYNAMIC_METADATA
(-metadata), STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT (-costs asked), LIMIT_RESPONSE_HEADERS_ENABLED, LIMIT_LIMIT_HEADER, LIMIT_REMAINING_HEADER
and LIMIT_RESET_HEADER (-headers), GRPC_SERVER_USE_TLS, GRPC_SERVER_TLS_CERT,
GRPC_SERVER_TLS_KEY, GRPC_CLIENT_TLS_CACERT and GRPC_CLIENT_TLS_SAN (-tls-...). Other variables have no effect.

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
	fs.StringVar(&s.Config, "config", e.config(), "`file`, or directory with files *.yaml and *.yml, also in its directories")
	fs.BoolVar(&s.Merge, "merge-domains", e.bool("MERGE_DOMAIN_CONFIG"), "files may share a domain")
	fs.DurationVar(&s.Poll, "poll", 2*time.Second, "time between two looks at the files")
	fs.StringVar(&s.GRPC, "grpc", e.address("GRPC_HOST", "GRPC_PORT", "8081"), "`address` of the gRPC service")
	fs.StringVar(&s.HTTP, "http", e.address("HOST", "PORT", "8080"), "`address` of /healthcheck, /metrics, /json and /rlconfig; empty: none")
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
	o := &s.Service
	o.LimitHeader, o.RemainingHeader, o.ResetHeader = getenv("LIMIT_LIMIT_HEADER"), getenv("LIMIT_REMAINING_HEADER"), getenv("LIMIT_RESET_HEADER")
	bad := e.bad
	if fs.NArg() > 0 {
		bad.Add("arguments", strings.Join(fs.Args(), " "), "are not expected")
	}
	var ok bool
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
	refuse(s.Config == "", "-config", s.Config, "is required")
	refuse(s.Poll < 100*time.Millisecond, "-poll", s.Poll, "must be at least 100ms")
	refuse(s.GRPC == "", "-grpc", s.GRPC, "is required")
	refuse(s.Prefix != "" && !adapter.CheckName(s.Prefix), "-prefix", s.Prefix, "must match [A-Za-z0-9_.-]{1,128}")
	refuse(s.Tags < 0 || s.Tags > lua.MaxTags, "-tags", s.Tags, fmt.Sprintf("must be 0 to %d", lua.MaxTags))
	refuse(s.Replicas < 0, "-replicas", s.Replicas, "must not be negative")
	refuse(s.Service.Limiter.MaxKeys < 0, "-max-keys", s.Service.Limiter.MaxKeys, "must not be negative")
	refuse(s.Drain < 0 || s.ReadyIn < 0, "-drain, -ready-in", fmt.Sprint(s.Drain, ", ", s.ReadyIn), "must not be negative")
	refuse((t.Cert == "") != (t.Key == "") || t.ClientCA != "" && t.Cert == "",
		"-tls-cert, -tls-key, -tls-client-ca", fmt.Sprintf("%q", t), "must be set together; the last one may be empty")
	refuse(t.ClientName != "" && t.ClientCA == "", "-tls-client-name", t.ClientName, "needs -tls-client-ca")
	s.Redis.check(bad)
}

// tags returns the number of tags of the hub. Requests for one tag share messages while one is under way. One master
// needs one tag, so that most of them do.
func (s *Settings) tags() int {
	if s.Tags == 0 && s.Redis.cluster() {
		return lua.DefaultTags
	}
	return max(s.Tags, 1)
}

// environment reads variables of envoyproxy/ratelimit.
type environment struct {
	get func(string) string
	bad adapter.Violations
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
	return e.get(host) + ":" + cmp.Or(e.get(port), standard)
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
