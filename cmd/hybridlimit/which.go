package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// which is the flags that select a key. All commands about a key have them.
type which struct {
	walk                // for -digest
	text         string // -for-key
	user         string
	ip           string
	bits4, bits6 int
	apiKey       string // "-": read from standard input
	bearer       string // "-": read from standard input
	header       string
	secretFile   string
	digest       string
	offline      bool // the command asks no Redis, so it has no -digest
	split        int  // the number of parts of the key; 0: not known

	secret hybridlimit.Secret // read from secretFile
	sent   string             // read from standard input
}

// add adds the flags.
func (w *which) add(fs *flag.FlagSet) {
	fs.StringVar(&w.text, "for-key", "", "the `key` as text, as LimitFor gets it, or in double quotes as list prints it")
	fs.StringVar(&w.user, "user", "", "instead of a key: the `name` of a user, for a key of httplimit.User or grpclimit.User")
	fs.StringVar(&w.ip, "ip", "", "instead of a key: the client's `address`, for a key of ClientIP, PeerIP or Peer")
	fs.IntVar(&w.bits4, "ipv4-bits", 32, "for -ip: the value of IPConfig.IPv4Bits")
	fs.IntVar(&w.bits6, "ipv6-bits", 64, "for -ip: the value of IPConfig.IPv6Bits")
	fs.StringVar(&w.apiKey, "api-key", "", "instead of a key: `-` reads an API key from standard input, for a key of httplimit.APIKey; never pass the API key itself, because a shell's history would keep it")
	fs.StringVar(&w.header, "header", "X-Api-Key", "for -api-key: the `name` of the API key's header")
	fs.StringVar(&w.bearer, "bearer", "", "instead of a key: `-` reads a bearer token from standard input, for a key of httplimit.Bearer")
	fs.StringVar(&w.secretFile, "secret-file", "", "for -user, -api-key and -bearer: `file` with the secret of the key function; a newline at the end of the file is ignored")
	if !w.offline {
		w.walk.add(fs)
		fs.IntVar(&w.split, "split", 0, "the result of Config.Split for the key, 1 for a whole key; without it, the number of parts that the processes of the limiter say, if Redis has a state of one of these")
		fs.StringVar(&w.digest, "digest", "", "instead of a key: the `key_digest` of a log line; finding it takes a scan, unless keys are hashed")
	}
}

// given returns the number of flags that name a key.
func (w *which) given() (n int) {
	for _, s := range []string{w.text, w.user, w.ip, w.apiKey, w.bearer, w.digest} {
		if s != "" {
			n++
		}
	}
	return n
}

// flags names the flags that name a key.
func (w *which) flags() string {
	if w.offline {
		return "-for-key, -user, -ip, -api-key and -bearer"
	}
	return "-for-key, -user, -ip, -api-key, -bearer and -digest"
}

// argument makes the argument of the command the text of the key, if there is one. It adds a violation unless there is
// exactly one key.
func (w *which) argument(bad *adapter.Violations, args []string) {
	if w.given() == 0 && len(args) == 1 {
		w.text = args[0]
		bad.AddIf(w.text == "", "arguments", "[key]", hybridlimit.ErrEmptyKey.Error())
		return
	}
	bad.AddIf(w.given() != 1 || len(args) > 0, "arguments", args, "must be one key, or one of "+w.flags())
}

// check adds a violation for each invalid flag, and reads the secret and standard input.
func (w *which) check(bad *adapter.Violations, in io.Reader) {
	bad.AddIf(w.given() > 1, "arguments", w.given(), "name more than one key: use one of "+w.flags())
	if strings.HasPrefix(w.text, `"`) {
		if text, err := strconv.Unquote(w.text); err == nil {
			w.text = text
		}
	}
	if err := adapter.CheckRequest(w.text, 1, maxKeyBytes); w.text != "" && err != nil {
		bad.Add("-for-key", "[key]", err.Error())
	}
	for _, s := range []struct{ flag, value, what string }{{"-api-key", w.apiKey, "the API key"}, {"-bearer", w.bearer, "the token"}} {
		switch s.value {
		case "":
		case "-":
			w.sent = sentIn(bad, in, s.flag)
		default:
			bad.Add(s.flag, "[secret]", "must be -, with "+s.what+" in standard input")
		}
	}
	bad.AddIf(w.apiKey != "" && w.header == "", "-header", w.header, "must not be empty")
	if w.digest != "" {
		sum, err := base64.RawURLEncoding.DecodeString(w.digest)
		bad.AddIf(err != nil || len(sum) != 16, "-digest", w.digest, "must be a key_digest of 22 characters")
	}
	if w.ip != "" {
		_, err := netip.ParseAddr(w.ip)
		bad.AddIf(err != nil, "-ip", w.ip, "must be an IP address without a port")
		_, err = w.clientIP()
		bad.AddIf(err != nil, "-ipv4-bits, -ipv6-bits", fmt.Sprint(w.bits4, ", ", w.bits6), "must be 1 to 32 and 1 to 128")
	}
	w.secret = secretOf(bad, "-secret-file", w.secretFile)
	bad.AddIf(w.split < 0 || w.split > lua.MaxTags, "-split", w.split, "must be 1 to 16384, or 0 if it is not known")
	unused := w.secret != "" && w.user == "" && w.apiKey == "" && w.bearer == ""
	bad.AddIf(unused, "-secret-file", w.secretFile, "needs -user, -api-key or -bearer")
	if !w.offline {
		w.walk.check(bad)
	}
}

// clientIP returns the KeyFunc for -ip.
func (w *which) clientIP() (httplimit.KeyFunc, error) {
	return httplimit.ClientIP(httplimit.IPConfig{IPv4Bits: w.bits4, IPv6Bits: w.bits6})
}

// key returns the text of the key, unless -digest is set. Call check before.
func (w *which) key() string {
	switch {
	case w.user != "":
		return clientkey.User(w.secret, w.user)
	case w.ip != "":
		of, _ := w.clientIP() // check has found no error
		return of(&http.Request{RemoteAddr: w.ip})
	case w.apiKey != "":
		return clientkey.APIKey(w.secret, w.header, w.sent)
	case w.bearer != "":
		return clientkey.Bearer(w.secret, w.sent)
	}
	return w.text
}

// sentIn reads a secret of a client from standard input, as a server gets it.
func sentIn(bad *adapter.Violations, in io.Reader, name string) string {
	text, err := io.ReadAll(io.LimitReader(in, maxKeyBytes+1))
	sent := strings.Trim(line(text), " \t") // as a server trims a header
	switch {
	case err != nil:
		bad.Add(name, "[secret]", "cannot be read from standard input: "+err.Error())
	case sent == "" || len(text) > maxKeyBytes:
		bad.Add(name, "[secret]", fmt.Sprintf("must be 1 to %d bytes in standard input", maxKeyBytes))
	}
	return sent
}

// keyText is the command key.
func keyText(fs *flag.FlagSet, c *connection) job {
	key := &which{offline: true}
	key.add(fs)
	var j job
	j.check = func(bad *adapter.Violations, args []string) {
		key.argument(bad, args)
		key.check(bad, c.in)
	}
	j.do = func(_ context.Context, _ []string, out *printer) error {
		out.value = map[string]string{"key": key.key()}
		fmt.Fprintln(out, key.key())
		return nil
	}
	return j
}

// target is a key that a command is about.
type target struct {
	key      string // the caller's key; empty: unknown, because it is hashed
	digest   string
	redisKey string      // of a split key: of the first of its parts that were found
	states   []partState // of a split key: of all its parts; else nil
}

// said returns what the processes say, and asks them once; nothing, if the Redis user may not read it.
type said func() (roll, error)

// said returns the text of the key, or its digest.
func (t target) said() string { return cmp.Or(t.key, t.digest) }

// target returns the key that the flags name, and sets its limit if the flag -limit does not. A nil limit stays
// unknown.
func (c *connection) target(ctx context.Context, key *which, tagBy string, limit *limitFlag) (t target, err error) {
	live := sync.OnceValues(func() (roll, error) {
		live, err := c.roll(ctx)
		if err != nil && !refused(err) {
			return live, fmt.Errorf("hybridlimit: %w", err)
		}
		return live, nil
	})
	if key.digest != "" {
		t, err = c.find(ctx, key, live)
	} else {
		t.key = key.key()
		t.digest = c.names().Digest(c.name, t.key)
		tag := c.names().Tag(cmp.Or(tagBy, t.key))
		t.redisKey = c.names().State(tag, c.name, t.key)
		err = c.findParts(ctx, &t, tag, key.split, live)
	}
	if err == nil && limit != nil && !limit.set {
		err = c.knownLimit(ctx, t, limit, live)
	}
	return t, err
}

// knownLimit sets the limit of a key: the fleet's limit of the key, or else the limit that all
// processes of the limiter say. A limit of LimitFor or of a file is not known here.
func (c *connection) knownLimit(ctx context.Context, t target, limit *limitFlag, live said) error {
	h, err := c.hub(c.tags)
	if err != nil {
		return err
	}
	stored := t.digest // with HashKeys without the secret
	if t.key != "" {
		stored = c.names().Stored(c.name, t.key)
	}
	all, err := h.FleetKeyLimits(ctx, c.name)
	if err != nil {
		return err
	}
	for _, k := range all {
		if k.Key == stored && k.Limit != (hybridlimit.Limit{}) {
			limit.limit, limit.set, limit.from = k.Limit, true, "the fleet for this key"
			break
		}
	}
	if !limit.set {
		all, err := live()
		if err != nil {
			return err
		}
		said, ok := all.of[c.name].limit()
		if fleet, err := h.FleetLimit(ctx, c.name); err == nil && fleet.Limit != (hybridlimit.Limit{}) && (fleet.Part == 0 || fleet.Part == 1) {
			limit.limit, limit.set, limit.from = fleet.Limit, true, "the fleet; the key may have its own"
		} else if ok {
			limit.limit, limit.set, limit.from = said, true, "the limiter; the key may have its own"
		}
	}
	if a := limit.limit.Algorithm; limit.set && (a == hybridlimit.AlgUnlimited || a == hybridlimit.AlgBlocked || a == hybridlimit.AlgConcurrent) {
		*limit = limitFlag{}
	}
	return nil
}

// find returns the key with a digest. With HashKeys the digest is part of the Redis key; without, find scans the
// limiter's keys.
func (c *connection) find(ctx context.Context, w *which, live said) (t target, err error) {
	t.digest = w.digest
	if err = c.hashedKey(ctx, &t, w.split, live); t.redisKey != "" || err != nil {
		return t, err
	}
	if c.secret == "" {
		names := c.names()
		err = w.run(ctx, c, names.Pattern(c.name), func(_ context.Context, _ *redis.Client, keys []string) (bool, error) {
			for _, k := range keys {
				if p, ok := c.callers(k); ok && names.Digest(c.name, p.Key) == w.digest {
					t.key, t.redisKey = p.Key, k
					t.states = c.statesWith(p)
					return true, nil
				}
			}
			return false, nil
		})
	}
	switch {
	case err != nil:
		return t, fmt.Errorf("hybridlimit: %w", err)
	case t.redisKey != "":
		return t, nil
	case w.cut:
		return t, fmt.Errorf("hybridlimit: found no key of %q with this digest, but the scan ended after -for %v at -rate %d", c.name, w.most, w.rate)
	}
	return t, nothing(fmt.Sprintf("no key of %q in Redis has this digest: its state has expired, or -name, -prefix, -tags or -hash-secret-file is wrong", c.name))
}

// hashedKey finds the Redis key that ends with the digest, if there is one. It tries all tags, and the parts of a key
// that is split into so many, or into as many as processes say.
func (c *connection) hashedKey(ctx context.Context, t *target, split int, live said) error {
	names := c.plainNames()
	split, err := c.partsSaid(split, live)
	if err != nil {
		return err
	}
	each := 2 // states of a tag
	if split > 1 {
		each += split
	}
	for tag := 0; tag < c.tags; {
		var all []partState
		for ; tag < c.tags && (len(all) == 0 || len(all)+each <= pageKeys); tag++ {
			all = append(all, partState{redisKey: names.State(tag, c.name, t.digest)})
			all = append(all, statesOf(names, tag, c.name, t.digest, split)...)
			all = append(all, partState{redisKey: names.Rate(tag, c.name, t.digest)})
		}
		some, err := c.some(ctx, all)
		if err != nil {
			return err
		}
		if some >= 0 {
			if t.redisKey = all[some].redisKey; all[some].part.Of > 0 {
				first := some - some%each + 1
				t.states = all[first : first+split]
			}
			return nil
		}
	}
	return nil
}

// unknown scans for a state of a limiter without a process and without a switch. It returns nil if there is one, and
// else an error of type nothing.
func (c *connection) unknown(ctx context.Context, w *walk) error {
	found := false
	err := w.run(ctx, c, c.names().Pattern(c.name), func(_ context.Context, _ *redis.Client, keys []string) (bool, error) {
		for _, k := range keys {
			_, ok := c.callers(k)
			found = found || ok
		}
		return found, nil
	})
	if w.cut && err == nil {
		err = errors.New("the scan ended before all keys were seen")
	}
	switch {
	case found:
		return nil
	case err != nil:
		return nothing(fmt.Sprintf("no limiter %q has a process or a switch, with -prefix %s and -tags %d; whether it has keys is unknown: %v", c.name, c.prefix, c.tags, err))
	}
	return nothing(fmt.Sprintf("no limiter %q is known to this Redis: no key, no process and no switch, with -prefix %s and -tags %d; hybridlimit list shows the known ones", c.name, c.prefix, c.tags))
}

// limitFlag is the value of -limit.
type limitFlag struct {
	limit hybridlimit.Limit
	set   bool
	from  string // "": the flag itself; else where the limit is known from
}

// Set parses a limit.
func (f *limitFlag) Set(text string) (err error) {
	f.limit, err = hybridlimit.ParseLimit(text)
	if err == nil && f.limit.Algorithm == hybridlimit.AlgConcurrent {
		err = errors.New("must be the limit of a rate, such as 100/s: this command does not know limits of calls in flight")
	}
	f.set = err == nil
	return err
}

// String returns the limit, or "" if the flag is not set.
func (f *limitFlag) String() string {
	if !f.set {
		return ""
	}
	return f.limit.String()
}

// limitText returns a limit as text that -limit reads.
func limitText(limit hybridlimit.Limit) string {
	text, err := limit.MarshalText()
	if err != nil {
		return limit.String()
	}
	return string(text)
}
