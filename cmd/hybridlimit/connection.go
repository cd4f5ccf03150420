package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/lua"
)

// connection is the flags that all commands have.
type connection struct {
	url        string
	cluster    bool
	functions  bool
	prefix     string
	tags       int
	name       string
	secretFile string
	timeout    time.Duration
	trust      trust

	secret  hybridlimit.Secret // out of secretFile
	in      io.Reader          // standard input
	unnamed bool               // the command does without -name
}

const defaultURL = "redis://localhost:6379"

func addConnection(fs *flag.FlagSet, fromEnv string) *connection {
	c := &connection{}
	if fromEnv == "" {
		fromEnv = defaultURL
	}
	c.url = fromEnv
	fs.Func("redis", "`URL` of Redis, redis://[user:password@]host:port[/db], rediss:// for TLS (default $HYBRIDLIMIT_REDIS, or "+defaultURL+")", func(s string) error {
		c.url = s
		return nil
	})
	fs.BoolVar(&c.cluster, "cluster", false, "it is a Redis Cluster; more nodes by ?addr=host:port in the URL")
	fs.BoolVar(&c.functions, "functions", false, "run functions, not scripts, as HubConfig.Functions does: the library is loaded where it is missing, by inspect too")
	fs.StringVar(&c.prefix, "prefix", "hl", "HubConfig.Prefix")
	fs.IntVar(&c.tags, "tags", lua.DefaultTags, "HubConfig.Tags")
	fs.StringVar(&c.name, "name", "", "Config.Name of the limiter (required, but for list)")
	fs.StringVar(&c.secretFile, "hash-secret-file", "", "`file` with HubConfig.HashKeys; a newline at its end is not part of it")
	c.trust.add(fs)
	fs.DurationVar(&c.timeout, "timeout", 2*time.Second, "longest wait for one answer")
	return c
}

// check notes what is wrong with the flags, and reads the secret.
func (c *connection) check(bad *hybridlimit.Violations) {
	if optional := c.unnamed && c.name == ""; !optional && !hybridlimit.CheckName(c.name) {
		bad.Add("-name", c.name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	}
	if !hybridlimit.CheckName(c.prefix) {
		bad.Add("-prefix", c.prefix, "must match [A-Za-z0-9_.-]{1,128}")
	}
	if c.tags < 1 || c.tags > lua.MaxTags {
		bad.Add("-tags", c.tags, "must be 1 to 16384")
	}
	if c.timeout <= 0 {
		bad.Add("-timeout", c.timeout, "must be positive")
	}
	c.secret = secretOf(bad, "-hash-secret-file", c.secretFile)
	c.trust.check(bad, strings.HasPrefix(c.url, "rediss:"))
	if _, err := c.options(); err != nil {
		bad.Add("-redis", "[url]", err.Error())
	}
}

// secretOf reads the file of a secret; none where there is no file.
func secretOf(bad *hybridlimit.Violations, name, file string) hybridlimit.Secret {
	if file == "" {
		return ""
	}
	text, err := os.ReadFile(file)
	secret := hybridlimit.Secret(line(text))
	switch {
	case err != nil:
		bad.Add(name, file, "cannot be read: "+err.Error())
	case secret == "":
		bad.Add(name, file, "is empty")
	default:
		bad.AddSecret(name, secret)
	}
	return secret
}

// line is a text without the newline at its end.
func line(text []byte) string {
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
}

// options reads the URL. What is wrong with it is said without what is in it.
func (c *connection) options() (connect func() redis.UniversalClient, err error) {
	const problem = "must be redis://[user:password@]host:port[/db], or rediss:// or unix://"
	if c.cluster {
		o, err := redis.ParseClusterURL(c.url)
		if err != nil {
			return nil, fmt.Errorf("%s", problem)
		}
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1 // -timeout holds, and a dial's error is heard before it is over
		c.trust.apply(o.TLSConfig)
		return func() redis.UniversalClient { return redis.NewClusterClient(o) }, nil
	}
	o, err := redis.ParseURL(c.url)
	if err != nil {
		return nil, fmt.Errorf("%s", problem)
	}
	o.ContextTimeoutEnabled, o.DialerRetries = true, 1
	if o.MaxRetries == 0 {
		o.MaxRetries = -1
	}
	c.trust.apply(o.TLSConfig)
	return func() redis.UniversalClient { return redis.NewClient(o) }, nil
}

// open connects, and refuses a node of a cluster that is taken for a Redis by
// itself: it has a part of the keys, and would be shown as if it had all. Only
// after check.
func (c *connection) open(ctx context.Context) (redis.UniversalClient, error) {
	connect, err := c.options()
	if err != nil {
		return nil, err
	}
	rdb := connect()
	if c.cluster {
		return rdb, nil
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	said, err := rdb.Do(bounded, "hello").Result() // go-redis has sent it with the connection, so it is allowed
	switch {
	case errors.As(err, new(redis.Error)):
		rdb.Close()
		return nil, fmt.Errorf("hybridlimit: Redis does not tell whether it is a node of a cluster: %w", err)
	case err != nil:
		rdb.Close()
		return nil, fmt.Errorf("hybridlimit: Redis cannot be reached: %w", err)
	case mode(said) == "cluster":
		rdb.Close()
		var bad hybridlimit.Violations
		bad.Add("-cluster", false, "must be set: this Redis is a node of a cluster")
		return nil, bad.Err("hybridlimit")
	}
	return rdb, nil
}

// mode is what HELLO says of a server, a map or, by the older protocol, a list:
// "standalone", "cluster" or "sentinel".
func mode(said any) string {
	switch said := said.(type) {
	case map[any]any:
		return fmt.Sprint(said["mode"])
	case []any:
		for i := 0; i+1 < len(said); i += 2 {
			if said[i] == "mode" {
				return fmt.Sprint(said[i+1])
			}
		}
	}
	return ""
}

func (c *connection) names() lua.Names {
	return lua.Names{Prefix: c.prefix, Tags: c.tags, HashKeys: c.secret}
}

// limiter is one of the fleet's limiters, to ask Redis by.
func (c *connection) limiter(rdb redis.UniversalClient, limit hybridlimit.Limit, subject string) (*global.Limiter, error) {
	cfg := global.Config{
		Prefix: c.prefix, Tags: c.tags, Name: c.name, Timeout: c.timeout, HashKeys: c.secret, Functions: c.functions, MaxKeyBytes: maxKeyBytes,
	}
	if subject != "" {
		cfg.Subject = func(string) string { return subject }
	}
	return global.New(rdb, limit, cfg)
}

// maxKeyBytes is more than any limiter should take: the tool is not to refuse
// what they accept.
const maxKeyBytes = 64 << 10

// slot is where a key lives.
func (c *connection) slot(key, subject string) (tag int, name string) {
	if subject == "" {
		subject = key
	}
	tag = c.names().Tag(subject)
	return tag, c.names().State(tag, c.name, key)
}

// limitFlag is -limit.
type limitFlag struct {
	limit hybridlimit.Limit
	set   bool
}

func (f *limitFlag) Set(text string) (err error) {
	f.limit, err = hybridlimit.ParseLimit(text)
	f.set = err == nil
	return err
}

func (f *limitFlag) String() string {
	if !f.set {
		return ""
	}
	return f.limit.String()
}
