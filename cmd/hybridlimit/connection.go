package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/lua"
)

// connection is the flags common to all commands.
type connection struct {
	url        string
	cluster    bool
	functions  bool
	prefix     string
	tags       int   // 0: those of the deployment, see findTags
	all        []int // without a name: the tags of all deployments of the prefix
	name       string
	secretFile string
	timeout    time.Duration
	trust      trust

	secret  hybridlimit.Secret // read from secretFile
	in      io.Reader          // standard input
	unnamed bool               // -name is optional for the command

	// Set by open.
	rdb   redis.UniversalClient
	calls *runner.Runner
	hubs  []*hybrid.Hub
}

// defaultURL is the URL without -redis and HYBRIDLIMIT_REDIS.
const defaultURL = "redis://localhost:6379"

// addConnection adds the flags. fromEnv is the value of HYBRIDLIMIT_REDIS.
func addConnection(fs *flag.FlagSet, fromEnv string) *connection {
	c := &connection{url: cmp.Or(fromEnv, defaultURL)}
	fs.Func("redis", "`URL` of Redis, redis://[user:password@]host:port[/db], rediss:// for TLS (default $HYBRIDLIMIT_REDIS, or "+defaultURL+")", func(s string) error {
		c.url = s
		return nil
	})
	fs.BoolVar(&c.cluster, "cluster", false, "connect to a Redis Cluster; add nodes to the URL with ?addr=host:port")
	fs.BoolVar(&c.functions, "functions", false, "run functions instead of scripts, as HubConfig.Functions does; every command, even inspect, loads the library if it is missing")
	fs.StringVar(&c.prefix, "prefix", "hl", "the value of HubConfig.Prefix")
	fs.IntVar(&c.tags, "tags", 0, "the value of HubConfig.Tags; 0: as the processes of the limiter say, and without processes 16")
	fs.StringVar(&c.name, "name", "", "the limiter's Config.Name (required, except for list and top)")
	fs.StringVar(&c.secretFile, "hash-secret-file", "", "`file` with the value of HubConfig.HashKeys; a newline at the end of the file is ignored")
	c.trust.add(fs)
	fs.DurationVar(&c.timeout, "timeout", 2*time.Second, "longest wait for one reply of Redis")
	return c
}

// check adds a violation for each invalid flag, and reads the secret.
func (c *connection) check(bad *adapter.Violations) {
	optional := c.unnamed && c.name == ""
	bad.AddIf(!optional && !adapter.CheckName(c.name), "-name", c.name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(!adapter.CheckName(c.prefix), "-prefix", c.prefix, "must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(c.tags < 0 || c.tags > lua.MaxTags, "-tags", c.tags, "must be 1 to 16384, or 0")
	bad.AddIf(c.timeout <= 0, "-timeout", c.timeout, "must be positive")
	c.secret = secretOf(bad, "-hash-secret-file", c.secretFile)
	c.trust.check(bad, strings.HasPrefix(c.url, "rediss:"))
	if _, err := c.options(); err != nil {
		bad.Add("-redis", "[url]", err.Error())
	}
}

// secretOf reads a secret from a file. Without a file name there is no secret.
func secretOf(bad *adapter.Violations, name, file string) hybridlimit.Secret {
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

// line returns a text without the newline at its end.
func line(text []byte) string {
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
}

// options parses the URL. Its error does not quote the URL, which may contain a password.
func (c *connection) options() (connect func() redis.UniversalClient, err error) {
	problem := errors.New("must be redis://[user:password@]host:port[/db], or rediss:// or unix://")
	if c.cluster {
		o, err := redis.ParseClusterURL(c.url)
		if err != nil {
			return nil, problem
		}
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1 // for -timeout to hold, and for a dial's error to come before it
		c.trust.apply(o.TLSConfig)
		return func() redis.UniversalClient { return redis.NewClusterClient(o) }, nil
	}
	o, err := redis.ParseURL(c.url)
	if err != nil {
		return nil, problem
	}
	o.ContextTimeoutEnabled, o.DialerRetries, o.MaxRetries = true, 1, cmp.Or(o.MaxRetries, -1)
	c.trust.apply(o.TLSConfig)
	return func() redis.UniversalClient { return redis.NewClient(o) }, nil
}

// open connects to Redis, and finds the number of tags. It fails for a node of a cluster without -cluster: such a node
// has only a part of the keys. Call check before, and close after it has returned nil.
func (c *connection) open(ctx context.Context) error {
	connect, err := c.options()
	if err != nil {
		return err
	}
	c.rdb = connect()
	if !c.cluster {
		err = c.single(ctx)
	}
	if err == nil {
		err = c.findTags(ctx)
	}
	if err == nil {
		c.calls, err = runner.New(c.rdb, c.timeout, runner.WithFunctions(c.functions))
	}
	if err != nil {
		c.rdb.Close()
	}
	return err
}

func (c *connection) close() {
	for _, h := range c.hubs {
		h.Close()
	}
	c.calls.Close()
	c.rdb.Close()
}

// hub returns a hub without limiters, which is no process of the fleet. It reads and sets fleet switches and limits.
func (c *connection) hub(tags int) (*hybrid.Hub, error) {
	h, err := hybrid.NewHub(c.rdb, hybrid.HubConfig{
		Prefix: c.prefix, Tags: tags, SyncTimeout: c.timeout, HashKeys: c.secret, Functions: c.functions,
	})
	if err == nil {
		c.hubs = append(c.hubs, h)
	}
	return h, err
}

// single fails for a node of a cluster.
func (c *connection) single(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	said, err := c.rdb.Do(bounded, "hello").Result() // allowed: go-redis sends HELLO for each connection
	switch {
	case errors.As(err, new(redis.Error)):
		return fmt.Errorf("hybridlimit: cannot find out whether this Redis is a node of a cluster: %w", err)
	case err != nil:
		return fmt.Errorf("hybridlimit: cannot connect to Redis: %w", err)
	case mode(said) == "cluster":
		return invalid("-cluster", false, "must be set: this Redis is a node of a cluster")
	}
	return nil
}

// mode returns the mode in a reply to HELLO: "standalone", "cluster" or "sentinel". The reply is a map, or a list with
// the older protocol.
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

// names builds the deployment's Redis keys.
func (c *connection) names() lua.Names {
	return lua.Names{Prefix: c.prefix, Tags: c.tags, HashKeys: c.secret}
}

// plainNames are the names of keys whose text in Redis is known: it is hashed already, if it is.
func (c *connection) plainNames() lua.Names {
	names := c.names()
	names.HashKeys = ""
	return names
}

// maxKeyBytes bounds a key. It is above any sensible Config.MaxKeyBytes, so that the tool accepts every key that a
// limiter accepts.
const maxKeyBytes = 64 << 10

// trust is the flags of TLS.
type trust struct {
	ca, cert, key string

	roots *x509.CertPool    // read from ca
	own   []tls.Certificate // read from cert and key
}

// add adds the flags.
func (t *trust) add(fs *flag.FlagSet) {
	fs.StringVar(&t.ca, "tls-ca", "", "PEM `file` with the authorities that may sign Redis's certificate (default: those of the system)")
	fs.StringVar(&t.cert, "tls-cert", "", "PEM `file` with the client certificate; needs -tls-key")
	fs.StringVar(&t.key, "tls-key", "", "PEM `file` with the private key of -tls-cert")
}

// check reads the files, and adds a violation for each invalid flag.
func (t *trust) check(bad *adapter.Violations, encrypted bool) {
	for _, f := range []struct{ name, file string }{{"-tls-ca", t.ca}, {"-tls-cert", t.cert}, {"-tls-key", t.key}} {
		bad.AddIf(f.file != "" && !encrypted, f.name, f.file, "needs a rediss:// URL")
	}
	if t.ca != "" {
		t.roots = x509.NewCertPool()
		text, err := os.ReadFile(t.ca)
		switch {
		case err != nil:
			bad.Add("-tls-ca", t.ca, "cannot be read: "+err.Error())
		case !t.roots.AppendCertsFromPEM(text):
			bad.Add("-tls-ca", t.ca, "has no certificate")
		}
	}
	switch {
	case t.cert == "" && t.key == "":
	case t.cert == "":
		bad.Add("-tls-key", t.key, "needs -tls-cert")
	case t.key == "":
		bad.Add("-tls-cert", t.cert, "needs -tls-key")
	default:
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			bad.Add("-tls-cert", t.cert, "cannot be used: "+err.Error())
		}
		t.own = []tls.Certificate{pair}
	}
}

// apply sets the certificates in the TLS configuration of a URL. c is nil unless the URL is rediss://.
func (t *trust) apply(c *tls.Config) {
	if c == nil {
		return
	}
	if t.roots != nil {
		c.RootCAs = t.roots
	}
	c.Certificates = t.own
}
