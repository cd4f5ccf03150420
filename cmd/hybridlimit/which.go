package main

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
)

// which is the flags that select a key by something other than the key itself.
type which struct {
	ip           string
	bits4, bits6 int
	apiKey       string // "-": read from standard input
	header       string
	secretFile   string
	digest       string

	secret hybridlimit.Secret // read from secretFile
}

// add adds the flags.
func (w *which) add(fs *flag.FlagSet) {
	fs.StringVar(&w.ip, "ip", "", "instead of KEY: the client's `address`, for a key of httplimit.ClientIP or PeerIP")
	fs.IntVar(&w.bits4, "ipv4-bits", 32, "for -ip: the value of IPConfig.IPv4Bits")
	fs.IntVar(&w.bits6, "ipv6-bits", 64, "for -ip: the value of IPConfig.IPv6Bits")
	fs.StringVar(&w.apiKey, "api-key", "", "instead of KEY: `-` reads an API key from standard input, for a key of httplimit.APIKey; never pass the API key itself, because a shell's history would keep it")
	fs.StringVar(&w.header, "header", "X-Api-Key", "for -api-key: the `name` of the API key's header")
	fs.StringVar(&w.secretFile, "api-key-secret-file", "", "for -api-key: `file` with the secret of httplimit.APIKey; a newline at the end of the file is ignored")
	fs.StringVar(&w.digest, "digest", "", "instead of KEY: the `key_digest` of a log line; finding it takes a scan, unless keys are hashed")
}

// check adds a violation for each invalid flag, and reads the secret.
func (w *which) check(bad *hybridlimit.Violations, args []string) {
	said := 0
	for _, s := range []string{w.ip, w.apiKey, w.digest} {
		if s != "" {
			said++
		}
	}
	if said == 0 {
		arguments(bad, args, 1, 1, "must be one key")
		if len(args) == 1 {
			if err := hybridlimit.CheckRequest(args[0], 1, maxKeyBytes); err != nil {
				bad.Add("arguments", "[key]", err.Error())
			}
		}
	} else if said > 1 || len(args) > 0 {
		bad.Add("arguments", args, "must be one key, or one of -ip, -api-key and -digest")
	}
	if w.apiKey != "" && w.apiKey != "-" {
		bad.Add("-api-key", "[secret]", "must be -, with the API key in standard input")
	}
	if w.apiKey != "" && w.header == "" {
		bad.Add("-header", w.header, "must not be empty")
	}
	if w.digest != "" {
		if sum, err := base64.RawURLEncoding.DecodeString(w.digest); err != nil || len(sum) != 16 {
			bad.Add("-digest", w.digest, "must be a key_digest of 22 characters")
		}
	}
	if w.ip != "" {
		if _, err := netip.ParseAddr(w.ip); err != nil {
			bad.Add("-ip", w.ip, "must be an IP address without a port")
		}
		if _, err := w.clientIP(); err != nil {
			bad.Add("-ipv4-bits, -ipv6-bits", fmt.Sprint(w.bits4, ", ", w.bits6), "must be 1 to 32 and 1 to 128")
		}
	}
	w.secret = secretOf(bad, "-api-key-secret-file", w.secretFile)
}

// clientIP returns the KeyFunc for -ip.
func (w *which) clientIP() (httplimit.KeyFunc, error) {
	return httplimit.ClientIP(httplimit.IPConfig{IPv4Bits: w.bits4, IPv6Bits: w.bits6})
}

// key returns the key that the limiter uses, unless -digest is set. It calls the
// KeyFunc of httplimit with a request like the client's. Call check before.
func (w *which) key(in io.Reader, args []string) (string, error) {
	switch {
	case w.ip != "":
		of, err := w.clientIP()
		if err != nil {
			return "", err
		}
		return of(&http.Request{RemoteAddr: w.ip}), nil
	case w.apiKey != "":
		text, err := io.ReadAll(io.LimitReader(in, maxKeyBytes+1))
		if err != nil {
			return "", fmt.Errorf("hybridlimit: standard input: %w", err)
		}
		sent := strings.Trim(line(text), " \t") // as a server trims a header
		var bad hybridlimit.Violations
		if sent == "" || len(text) > maxKeyBytes {
			bad.Add("-api-key", "[secret]", fmt.Sprintf("must be 1 to %d bytes in standard input", maxKeyBytes))
			return "", bad.Err("hybridlimit")
		}
		of := httplimit.APIKey(w.header, w.secret)
		return of(&http.Request{Header: http.Header{http.CanonicalHeaderKey(w.header): {sent}}}), nil
	}
	return args[0], nil
}

// target is a key to inspect.
type target struct {
	key      string // the caller's key; empty: unknown, because it is hashed
	digest   string
	redisKey string
}

// find returns the key with a digest. With HashKeys the digest is part of the Redis
// key; without, find scans the limiter's keys.
func (c *connection) find(ctx context.Context, rdb redis.UniversalClient, digest string, w *walk) (t target, err error) {
	t.digest = digest
	if t.redisKey, err = c.hashedKey(ctx, rdb, digest); t.redisKey != "" || err != nil {
		return t, err
	}
	if c.secret == "" {
		names := c.names()
		err = w.run(ctx, c, rdb, names.Pattern(c.name), func(_ context.Context, _ *redis.Client, keys []string) (bool, error) {
			for _, k := range keys {
				if key, ok := c.callers(k); ok && names.Digest(c.name, key) == digest {
					t.key, t.redisKey = key, k
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

// hashedKey returns the Redis key that ends with a hash, or "" if there is none. It
// tries all tags.
func (c *connection) hashedKey(ctx context.Context, rdb redis.UniversalClient, hash string) (string, error) {
	names := c.names()
	names.HashKeys = "" // the key is already hashed
	for from := 0; from < c.tags; from += pageKeys {
		keys := make([]string, 0, pageKeys)
		ttls := make([]*redis.DurationCmd, 0, pageKeys)
		for tag := from; tag < min(c.tags, from+pageKeys); tag++ {
			keys = append(keys, names.State(tag, c.name, hash))
		}
		bounded, cancel := context.WithTimeout(ctx, c.timeout)
		_, err := rdb.Pipelined(bounded, func(p redis.Pipeliner) error {
			for _, k := range keys {
				ttls = append(ttls, p.PTTL(bounded, k))
			}
			return nil
		})
		cancel()
		if err != nil {
			return "", fmt.Errorf("hybridlimit: %w", err)
		}
		for i, ttl := range ttls {
			if ttl.Val() != -2 { // -2: no such key
				return keys[i], nil
			}
		}
	}
	return "", nil
}

// unknown scans for a state of a limiter without a process and without a switch. It
// returns nil if there is one, and else an error of type nothing.
func (c *connection) unknown(ctx context.Context, rdb redis.UniversalClient, w *walk) error {
	found := false
	err := w.run(ctx, c, rdb, c.names().Pattern(c.name), func(_ context.Context, _ *redis.Client, keys []string) (bool, error) {
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
