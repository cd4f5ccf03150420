package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// node is a redis-server that keeps an append-only file. It has a proxy in front, and a connection that bypasses the
// proxy.
type node struct {
	*redistest.Server
	proxy  *proxy
	admin  *redis.Client
	fallen bool // was a master until it failed
	saved  int  // number of append-only directories put aside
	attic  string

	mu       sync.Mutex           // held while Redis is told a setting, so that it has the youngest value
	settings map[string][]*string // by name: the value of before, then those of active faults, the youngest last
}

// aofArgs make a server keep everything that it has ever written. The kernel has each write before the reply is sent,
// so a SIGKILL loses none. Files are not rewritten. Files that a replica replaces at a sync are kept. Payloads of
// MIGRATE stay readable.
var aofArgs = []string{
	"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0", "--rdbcompression", "no",
	"--aof-disable-auto-gc", "yes",
	"--user", runner, "on", "nopass", "~*", "&*", "+@all",
}

// runner is the user of the runner's own connections. Faults change the password and the rights of the default user,
// and the runner may have to connect again meanwhile.
const runner = "runner"

func startNode(attic string, opts ...redistest.Option) (*node, error) {
	srv, err := redistest.Start(append([]redistest.Option{redistest.WithArgs(aofArgs...)}, opts...)...)
	if err != nil {
		return nil, err
	}
	p, err := startProxy(srv.Addr())
	if err != nil {
		srv.Close()
		return nil, err
	}
	n := &node{
		Server: srv, proxy: p, admin: adminClient(srv.Addr(), runner), settings: map[string][]*string{},
		attic: filepath.Join(attic, strconv.Itoa(srv.Port())),
	}
	return n, os.MkdirAll(n.attic, 0o700)
}

// adminClient returns a client with one connection, as a user without a password; "": the default user. Faults that
// refuse clients leave this connection open. The client gives up early and does not retry, because the runner does.
func adminClient(addr, user string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Username: user, Password: user, PoolSize: 1, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: time.Second, ReadTimeout: 3 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (n *node) close() {
	n.admin.Close()
	n.proxy.Stop()
	n.Close()
}

func (n *node) do(ctx context.Context, words ...any) error {
	if err := n.admin.Do(ctx, words...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("%s: %v: %w", n.Addr(), words[:min(len(words), 3)], err)
	}
	return nil
}

// info returns a field of INFO.
func (n *node) info(ctx context.Context, section, field string) string {
	text, _ := n.admin.Info(ctx, section).Result()
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}

// forget puts the append-only files of a stopped server aside for the ledger, so that the server starts empty.
func (n *node) forget() error {
	n.saved++
	return os.Rename(filepath.Join(n.Dir(), "appendonlydir"), filepath.Join(n.attic, strconv.Itoa(n.saved)))
}

// eternal returns the limiter's keys without a TTL. A server that does not answer has none: the ledger checks every
// write as well.
func (n *node) eternal(ctx context.Context) (out []string) {
	one, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for keys := n.admin.Scan(one, 0, "hl:*", 1000).Iterator(); keys.Next(one); {
		if ttl, err := n.admin.PTTL(one, keys.Val()).Result(); err == nil && ttl == -1 {
			out = append(out, keys.Val())
		}
	}
	return out
}

// set changes a setting until back succeeds. Faults of a mix change the same setting, and end in any order. The
// youngest active fault decides, and the end of the last one restores the value of before.
func (n *node) set(ctx context.Context, name, value string) (back func() error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.settings[name]) == 0 {
		was, err := n.admin.ConfigGet(ctx, name).Result()
		if err != nil {
			return nil, err
		}
		before := was[name]
		n.settings[name] = []*string{&before}
	}
	if err := n.do(ctx, "CONFIG", "SET", name, value); err != nil {
		return nil, err
	}
	n.settings[name] = append(n.settings[name], &value)
	return func() error { // after an error it may be called again
		n.mu.Lock()
		defer n.mu.Unlock()
		left := slices.DeleteFunc(slices.Clone(n.settings[name]), func(s *string) bool { return s == &value })
		if err := n.do(ctx, "CONFIG", "SET", name, *left[len(left)-1]); err != nil {
			return err
		}
		n.settings[name] = left
		return nil
	}, nil
}

// proxy is a toxiproxy in front of one server, in this process.
type proxy struct {
	*toxiproxy.Proxy
	poisons atomic.Int64 // number of toxics so far
}

func startProxy(upstream string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, upstream, "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", upstream, err)
	}
	return &proxy{Proxy: p}, nil
}

// The directions in which a toxic works.
const (
	requests = "upstream"
	replies  = "downstream"
)

// poison adds a toxic, and returns a function that removes it. The removal closes connections that the toxic has
// silenced, as a recovered network resets connections that it has forgotten. Each toxic has its own name, because two
// faults at once may have the same kind and direction, and the end of one must leave the other.
func (p *proxy) poison(kind, direction string, attributes map[string]int) (cure func() error, err error) {
	name := fmt.Sprintf("%s %d", kind, p.poisons.Add(1))
	text, err := json.Marshal(map[string]any{
		"name": name, "type": kind, "stream": direction, "toxicity": 1, "attributes": attributes,
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("toxic %s: %w", text, err)
	}
	return func() error { return p.Toxics.RemoveToxic(context.Background(), name) }, nil
}
