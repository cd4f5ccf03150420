package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
)

// target is a key that a command is about.
type target struct {
	key      string // the caller's key; empty: unknown, because it is hashed
	digest   string
	redisKey string
}

// said returns the text of the key, or its digest.
func (t target) said() string { return cmp.Or(t.key, t.digest) }

// target returns the key that the flags name, and sets its limit if the flag -limit does not. A nil limit stays unknown.
func (c *connection) target(ctx context.Context, key *which, w *walk, subject string, limit *limitFlag) (t target, err error) {
	if key.digest != "" {
		t, err = c.find(ctx, key.digest, w)
	} else if t.key, err = key.key(); err == nil {
		t.digest = c.names().Digest(c.name, t.key)
		t.redisKey = c.names().State(c.names().Tag(cmp.Or(subject, t.key)), c.name, t.key)
	}
	if err == nil && limit != nil && !limit.set {
		err = c.knownLimit(ctx, t, limit)
	}
	return t, err
}

// knownLimit sets the limit of a key: the fleet's limit of the key, or else the limit that all
// processes of the limiter say. A limit of LimitFor or of a file is not known here.
func (c *connection) knownLimit(ctx context.Context, t target, limit *limitFlag) error {
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
		live, err := c.roll(ctx)
		if err != nil && !refused(err) {
			return fmt.Errorf("hybridlimit: %w", err)
		}
		said, ok := live.limit(c.name)
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
func (c *connection) find(ctx context.Context, digest string, w *walk) (t target, err error) {
	t.digest = digest
	if t.redisKey, err = c.hashedKey(ctx, digest); t.redisKey != "" || err != nil {
		return t, err
	}
	if c.secret == "" {
		names := c.names()
		err = w.run(ctx, c, names.Pattern(c.name), func(_ context.Context, _ *redis.Client, keys []string) (bool, error) {
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

// hashedKey returns the Redis key that ends with a hash, or "" if there is none. It tries all tags.
func (c *connection) hashedKey(ctx context.Context, hash string) (string, error) {
	names := c.names()
	names.HashKeys = "" // the key is already hashed
	for from := 0; from < c.tags; from += pageKeys {
		keys := make([]string, 0, pageKeys)
		ttls := make([]*redis.DurationCmd, 0, pageKeys)
		for tag := from; tag < min(c.tags, from+pageKeys); tag++ {
			keys = append(keys, names.State(tag, c.name, hash))
		}
		bounded, cancel := context.WithTimeout(ctx, c.timeout)
		_, err := c.rdb.Pipelined(bounded, func(p redis.Pipeliner) error {
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
