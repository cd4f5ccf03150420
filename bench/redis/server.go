package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// server is a redis-server. Traffic of its admin client is not counted.
type server struct {
	addr  string
	admin *redis.Client
	stop  func() // ends the redis-server
}

// startServer starts a redis-server of this program.
func startServer() (*server, error) {
	s, err := redistest.Start()
	if err != nil {
		return nil, err
	}
	srv := reach(s.Addr())
	srv.stop = s.Close
	return srv, nil
}

// reach returns the redis-server of another process of this program.
func reach(addr string) *server {
	return &server{addr: addr, admin: redis.NewClient(&redis.Options{Addr: addr}), stop: func() {}}
}

func (s *server) close() {
	s.admin.Close()
	s.stop()
}

// client returns a client whose traffic w counts. w may be nil.
func (s *server) client(w *wire) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true, PoolSize: 64})
	if w != nil {
		c.AddHook(w)
	}
	return c
}

// wipe deletes all keys, and resets the figures of INFO commandstats and latencystats.
func (s *server) wipe(ctx context.Context) error {
	if err := s.admin.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return s.admin.ConfigResetStat(ctx).Err()
}

// connections returns the ids of all connections.
func (s *server) connections(ctx context.Context) (ids map[string]bool, err error) {
	list, err := s.admin.ClientList(ctx).Result()
	ids = map[string]bool{}
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		ids[id] = true
	}
	return ids, err
}

// endConnections ends all connections except those in but.
func (s *server) endConnections(ctx context.Context, but map[string]bool) error {
	ids, err := s.connections(ctx)
	for id := range ids {
		if !but[id] {
			// The error is ignored: the connection may have ended meanwhile.
			s.admin.ClientKillByFilter(ctx, "ID", id)
		}
	}
	return err
}

// info returns the fields of a section of INFO.
func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, err
}

// cpu returns the CPU time of Redis, user and system together, with background threads.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	fields, err := s.info(ctx, "cpu")
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

// commands returns calls and µs by command since the last reset, without the commands of this program.
func (s *server) commands(ctx context.Context) (map[string]map[string]float64, error) {
	fields, err := s.info(ctx, "commandstats")
	out := map[string]map[string]float64{}
	for name, value := range fields {
		name = strings.TrimPrefix(name, "cmdstat_")
		if name != "info" && !strings.HasPrefix(name, "config") && name != "flushall" {
			out[name] = subfields(value)
		}
	}
	return out, err
}

// calls returns the number of commands that Redis has run, with those that scripts call.
func (s *server) calls(ctx context.Context) (sum int64, err error) {
	commands, err := s.commands(ctx)
	for _, c := range commands {
		sum += int64(c["calls"])
	}
	return sum, err
}

// blocked returns the median and the 99th percentile of the µs for which a command has blocked Redis since the last
// reset. They are 0 before Redis 7, which does not report them.
func (s *server) blocked(ctx context.Context, command string) (p50, p99 float64, err error) {
	fields, err := s.info(ctx, "latencystats")
	v := subfields(fields["latency_percentiles_usec_"+command])
	return v["p50"], v["p99"], err
}
