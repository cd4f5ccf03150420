package server

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter"
)

// Redis names a Redis. The zero Redis is in the memory of this process.
type Redis struct {
	URL  string
	Type string // single, cluster, sentinel; empty: by the URL
	TLS  ClientTLS

	auth, sentinelAuth string // of the environment: "password" or "user:password"
}

func (r Redis) check(bad *adapter.Violations) {
	encrypted := r.TLS.always
	if r.URL != "" {
		var err error
		if _, encrypted, err = r.parse(); err != nil {
			bad.Add("-redis", "[url]", err.Error())
			return
		}
	}
	if f := r.TLS; (f.CA != "" || f.Cert != "" || f.Key != "") && !encrypted {
		bad.Add("-redis-ca, -redis-cert, -redis-key", strings.Join([]string{f.CA, f.Cert, f.Key}, ", "), "need a rediss:// URL in -redis")
	}
	r.TLS.check("-redis", bad)
}

// poolSize is the number of connections to one Redis. The limiters of a process share messages, so few connections are
// enough.
const poolSize = 10

// options returns the options of a client.
func (r Redis) options() (*redis.UniversalOptions, error) {
	o, encrypted, err := r.parse()
	if err == nil && encrypted {
		o.TLSConfig, err = r.TLS.config(o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify)
	}
	return o, err
}

// parse reads the URL. Its errors do not have it, because it may have a password.
func (r Redis) parse() (o *redis.UniversalOptions, encrypted bool, err error) {
	parts := strings.Split(r.URL, ",")
	o = &redis.UniversalOptions{MaxRetries: -1, PoolSize: poolSize, DialTimeout: time.Second}
	encrypted = r.TLS.always
	o.Username, o.Password = userAndPassword(r.auth)
	o.SentinelUsername, o.SentinelPassword = userAndPassword(r.sentinelAuth)
	switch r.Type {
	case "":
	case "single":
		if len(parts) > 1 {
			return nil, false, errors.New("must be one address for the type single")
		}
	case "cluster":
		o.IsClusterMode = true
	case "sentinel":
		if o.MasterName, parts = parts[0], parts[1:]; len(parts) == 0 || o.MasterName == "" {
			return nil, false, errors.New("must have the name of the master and the addresses of the sentinels, with commas")
		}
	default:
		return nil, false, fmt.Errorf("has the type %q, which must be single, cluster or sentinel", r.Type)
	}
	for _, part := range parts {
		if strings.HasPrefix(part, "/") {
			part = "unix://" + part
		} else if !strings.Contains(part, "://") {
			part = "redis://" + part
		}
		one, err := redis.ParseURL(part)
		if err != nil {
			return nil, false, errors.New("must be redis://[user:password@]host:port[/db], rediss://..., unix:///path, or host:port, several with commas")
		}
		o.Addrs = append(o.Addrs, one.Addr)
		if one.Password != "" {
			o.Username, o.Password = one.Username, one.Password
		}
		if one.TLSConfig != nil {
			o.TLSConfig, encrypted = one.TLSConfig, true
		}
		o.DB = one.DB
	}
	return o, encrypted, nil
}

// cluster reports whether the Redis is a cluster.
func (r Redis) cluster() bool {
	return r.Type == "cluster" || r.Type == "" && strings.Contains(r.URL, ",")
}

// userAndPassword splits "password" or "user:password".
func userAndPassword(s string) (user, password string) {
	if user, password, ok := strings.Cut(s, ":"); ok {
		return user, password
	}
	return "", s
}

// open returns a client. It does not connect. Without a URL it starts a Redis in this process, and warns on the writer.
// The function ends both.
func (r Redis) open(warn io.Writer) (redis.UniversalClient, func(), error) {
	if r.URL == "" {
		return embedded(warn)
	}
	o, err := r.options()
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewUniversalClient(o)
	return rdb, func() { rdb.Close() }, nil
}

const warning = `
hybridlimit-rls: WARNING: there is no -redis. The counts are in the memory of this process.
hybridlimit-rls: WARNING: Other replicas do not share them, and they are lost when it ends.

`

// embedded starts a Redis in this process.
func embedded(warn io.Writer) (redis.UniversalClient, func(), error) {
	fmt.Fprint(warn, warning)
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		return nil, nil, fmt.Errorf("hybridlimit-rls: start the Redis in memory: %w", err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr(), MaxRetries: -1, PoolSize: poolSize})
	// A miniredis does not remove by itself the keys whose time is over.
	const every = 10 * time.Second // decisions wait for a pass
	tick, done := time.NewTicker(every), make(chan struct{})
	go func() {
		for {
			select {
			case <-tick.C:
				mini.FastForward(every)
			case <-done:
				return
			}
		}
	}()
	return rdb, func() {
		tick.Stop()
		close(done)
		rdb.Close()
		mini.Close()
	}, nil
}
