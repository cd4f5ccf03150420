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

// which is the flags that say which key is meant where the key as a limiter
// counts it is not at hand.
type which struct {
	ip           string
	bits4, bits6 int
	apiKey       string // "-": from standard input
	header       string
	secretFile   string
	digest       string

	secret hybridlimit.Secret // out of secretFile
}

func (w *which) add(fs *flag.FlagSet) {
	fs.StringVar(&w.ip, "ip", "", "instead of KEY: the client's `address`, as httplimit.ClientIP makes a key of it")
	fs.IntVar(&w.bits4, "ipv4-bits", 32, "IPConfig.IPv4Bits, for -ip")
	fs.IntVar(&w.bits6, "ipv6-bits", 64, "IPConfig.IPv6Bits, for -ip")
	fs.StringVar(&w.apiKey, "api-key", "", "instead of KEY: `-`, to read an API key from standard input, as httplimit.APIKey makes a key of it; never the API key itself, which a shell's history would keep")
	fs.StringVar(&w.header, "header", "X-Api-Key", "the `name` of the header that holds it, for -api-key")
	fs.StringVar(&w.secretFile, "api-key-secret-file", "", "`file` with the secret of httplimit.APIKey, for -api-key; a newline at its end is not part of it")
	fs.StringVar(&w.digest, "digest", "", "instead of KEY: the `key_digest` of a line of the log; it is looked for by a scan, where keys are not hashed")
}

// check notes what is wrong with the flags, and reads the secret.
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
		bad.Add("-api-key", "[secret]", "must be -, and the API key in standard input")
	}
	if w.apiKey != "" && w.header == "" {
		bad.Add("-header", w.header, "must not be empty")
	}
	if w.digest != "" {
		if sum, err := base64.RawURLEncoding.DecodeString(w.digest); err != nil || len(sum) != 16 {
			bad.Add("-digest", w.digest, "must be the 22 letters of a key_digest")
		}
	}
	if w.ip != "" {
		if _, err := netip.ParseAddr(w.ip); err != nil {
			bad.Add("-ip", w.ip, "must be an address, without a port")
		}
		if _, err := w.clientIP(); err != nil {
			bad.Add("-ipv4-bits, -ipv6-bits", fmt.Sprint(w.bits4, ", ", w.bits6), "must be 1 to 32, and 1 to 128")
		}
	}
	w.secret = secretOf(bad, "-api-key-secret-file", w.secretFile)
}

func (w *which) clientIP() (httplimit.KeyFunc, error) {
	return httplimit.ClientIP(httplimit.IPConfig{IPv4Bits: w.bits4, IPv6Bits: w.bits6})
}

// key is the key as the limiter counts it, but of a digest. httplimit makes it,
// of a request like the client's. Only after check.
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
		sent := strings.Trim(line(text), " \t") // as a server reads a header
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

// target is a key that was found.
type target struct {
	key      string // the caller's; empty: not known, because Redis has a hash of it
	digest   string
	redisKey string
}

// find looks for the key that a digest stands for: under the digest, as which
// Redis has it with HashKeys, and else at each key of the limiter.
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
		return t, fmt.Errorf("hybridlimit: no key of %q with this digest was found before -for %v was over at -rate %d", c.name, w.most, w.rate)
	}
	return t, nothing(fmt.Sprintf("no key of %q in Redis has this digest: its state is over, or -name, -prefix, -tags or -hash-secret-file is another", c.name))
}

// hashedKey is the Redis key that ends with a hash; the tag is not known.
func (c *connection) hashedKey(ctx context.Context, rdb redis.UniversalClient, hash string) (string, error) {
	names := c.names()
	names.HashKeys = "" // it is hashed
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
			if ttl.Val() != -2 { // there is none
				return keys[i], nil
			}
		}
	}
	return "", nil
}

// unknown is nil where Redis has a state of the limiter; else it says that there
// is nothing: for a limiter without a process and without a switch.
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
		err = errors.New("not all keys were looked at in time")
	}
	switch {
	case found:
		return nil
	case err != nil:
		return nothing(fmt.Sprintf("no process and no switch of a limiter %q, by -prefix %s and -tags %d; whether it has keys is not known: %v", c.name, c.prefix, c.tags, err))
	}
	return nothing(fmt.Sprintf("no limiter %q is known to this Redis: no key, no process and no switch, by -prefix %s and -tags %d; hybridlimit list shows those that are", c.name, c.prefix, c.tags))
}
