package benchkit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// Redis is a redis-server. Traffic of its admin client is not counted.
type Redis struct {
	Addr  string
	Admin *redis.Client
	stop  func() // ends the redis-server
}

// StartRedis starts a redis-server of this program.
func StartRedis() (*Redis, error) {
	s, err := redistest.Start()
	if err != nil {
		return nil, err
	}
	return &Redis{s.Addr(), redis.NewClient(&redis.Options{Addr: s.Addr()}), s.Close}, nil
}

// Close ends the redis-server.
func (s *Redis) Close() {
	s.Admin.Close()
	s.stop()
}

// Client returns a client whose traffic w counts. w may be nil.
func (s *Redis) Client(w *Wire) *redis.Client { return ClientOf(s.Addr, w) }

// ClientOf returns a client of a redis-server that may belong to another process.
func ClientOf(addr string, w *Wire) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 64})
	if w != nil {
		c.AddHook(w)
	}
	return c
}

// Info returns the fields of a section of INFO.
func (s *Redis) Info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.Admin.Info(ctx, section).Result()
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, err
}

// CPU returns the CPU time of Redis, user and system together, with background threads. It is 0 if s is nil.
func (s *Redis) CPU(ctx context.Context) (time.Duration, error) {
	if s == nil {
		return 0, nil
	}
	fields, err := s.Info(ctx, "cpu")
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, bad := strconv.ParseFloat(fields[name], 64)
		if err == nil && bad != nil {
			err = fmt.Errorf("INFO cpu: %s is %q", name, fields[name])
		}
		sum += v
	}
	return time.Duration(sum * float64(time.Second)), err
}

// commands returns the number of commands since the last reset, with those that scripts call and without those of this
// program, the number of scripts among them, and the time in scripts.
func (s *Redis) commands(ctx context.Context) (calls, scripts int64, inScripts time.Duration, err error) {
	fields, err := s.Info(ctx, "commandstats")
	for name, text := range fields {
		name = strings.TrimPrefix(name, "cmdstat_")
		if name == "info" || strings.HasPrefix(name, "config") || name == "flushall" {
			continue
		}
		v := subfields(text)
		calls += int64(v["calls"])
		if name == "evalsha" || name == "eval" {
			scripts += int64(v["calls"])
			inScripts += time.Duration(v["usec"]) * time.Microsecond
		}
	}
	return calls, scripts, inScripts, err
}

// Blocked returns the median and the 99th percentile of the µs for which a command has blocked Redis since the last
// reset. They are 0 before Redis 7, which does not report them.
func (s *Redis) Blocked(ctx context.Context, command string) (p50, p99 float64, err error) {
	fields, err := s.Info(ctx, "latencystats")
	v := subfields(fields["latency_percentiles_usec_"+command])
	return v["p50"], v["p99"], err
}

// subfields parses text such as "calls=1,usec=2".
func subfields(text string) map[string]float64 {
	out := map[string]float64{}
	for part := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			out[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return out
}
