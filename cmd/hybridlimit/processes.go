package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// roll is the processes of a deployment, as their heartbeats count them.
type roll struct {
	of       map[string]int64 // by limiter
	accounts map[string]int64 // by limiter; a process has an account for each class of the limiter
	unknown  int64            // processes whose limiters are not known

	limits map[string]map[string]int64 // processes by limit, as text, by limiter
}

// processes returns N of a limiter. It includes processes whose limiters are not
// known, as the fleet does.
func (r roll) processes(limiter string) int64 { return r.of[limiter] + r.unknown }

// roll counts the processes of all limiters. It costs two messages, and two for each
// group of processes with the same limiters.
func (c *connection) roll(ctx context.Context, rdb redis.UniversalClient) (roll, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, names := roll{of: map[string]int64{}, accounts: map[string]int64{}, limits: map[string]map[string]int64{}}, c.names()
	text, err := textOf(ctx, rdb, names.Groups())
	if err != nil {
		return r, err
	}
	_, ids, ok := wire.DecodeGroups(text)
	if text != "" && !ok {
		return r, fmt.Errorf("%s: no process can have written %.40q", names.Groups(), text)
	}
	for _, id := range ids {
		now, err := rdb.Time(ctx).Result()
		if err != nil {
			return r, fmt.Errorf("TIME: %w", err)
		}
		n, err := rdb.ZCount(ctx, names.Group(id), strconv.FormatInt(now.UnixMicro(), 10), "+inf").Result()
		if err != nil {
			return r, fmt.Errorf("%s: %w", names.Group(id), err)
		}
		if text, err = textOf(ctx, rdb, names.GroupNames(id)); err != nil {
			return r, err
		}
		r.add(groups.Parse(id, text), n)
	}
	return r, nil
}

// add adds the processes of a group. said is nil if its names are not known.
func (r *roll) add(said *groups.Names, processes int64) {
	if said == nil {
		r.unknown += processes
		return
	}
	for name, classes := range said.Classes {
		r.of[name] += processes
		r.accounts[name] += processes * classes
	}
	for name, limit := range said.Limits {
		if processes == 0 {
			continue
		}
		if r.limits[name] == nil {
			r.limits[name] = map[string]int64{}
		}
		r.limits[name][limit] += processes
	}
}

// textOf returns the text of a key, or "" if there is none. MGET takes a key of another type for none, so textOf asks
// once more with GET, for which not every user has the right.
func textOf(ctx context.Context, rdb redis.UniversalClient, key string) (string, error) {
	got, err := rdb.MGet(ctx, key).Result()
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	if len(got) == 1 && got[0] != nil {
		text, _ := got[0].(string)
		return text, nil
	}
	text, err := rdb.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) && !refused(err) {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return text, nil
}

// refused reports whether the Redis user lacks a right.
func refused(err error) bool {
	e, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(e.Error(), "NOPERM")
}
