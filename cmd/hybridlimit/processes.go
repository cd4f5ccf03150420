package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// roll is the processes of a deployment, as their heartbeats count them.
type roll struct {
	of       map[string]int64 // by limiter
	accounts map[string]int64 // by limiter; a process has an account for each class of the limiter
	unknown  int64            // processes whose limiters are not known

	limits map[string]map[string]int64 // processes by limit, as text, by limiter
	tags   map[string]int              // by limiter: the number of tags of its processes
}

// newRoll returns a roll without processes.
func newRoll() roll {
	return roll{of: map[string]int64{}, accounts: map[string]int64{}, limits: map[string]map[string]int64{}, tags: map[string]int{}}
}

// limit returns the limit of a limiter that its processes say, if they say one and the same.
func (r roll) limit(limiter string) (limit hybridlimit.Limit, ok bool) {
	if len(r.limits[limiter]) != 1 {
		return limit, false
	}
	for text := range r.limits[limiter] {
		parsed, err := hybridlimit.ParseLimit(text)
		return parsed, err == nil
	}
	return limit, false
}

// limitsSaid describes the limits of a limiter: "100/s", or "100/s (2 processes), 200/s (1 processes)"; "" if none is known.
func (r roll) limitsSaid(limiter string) string {
	of := r.limits[limiter]
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(of)) {
		if len(of) > 1 {
			text += fmt.Sprintf(" (%d processes)", of[text])
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// processes returns N of a limiter. It includes processes whose limiters are not known, as the fleet does.
func (r roll) processes(limiter string) int64 { return r.of[limiter] + r.unknown }

// roll counts the processes of all limiters, of all deployments that findTags has found. It costs two messages, and two
// for each group of processes with the same limiters.
func (c *connection) roll(ctx context.Context) (roll, error) {
	if len(c.all) < 2 {
		return c.rollOf(ctx)
	}
	all := newRoll()
	for _, tags := range c.all {
		one := *c
		one.tags = tags
		r, err := one.rollOf(ctx)
		if err != nil {
			return all, err
		}
		all.unknown += r.unknown
		for name, n := range r.of {
			all.of[name] += n
			all.accounts[name] += r.accounts[name]
			all.tags[name] = tags
			for limit, n := range r.limits[name] {
				all.said(name, limit, n)
			}
		}
	}
	return all, nil
}

// rollOf is roll for one deployment.
func (c *connection) rollOf(ctx context.Context) (roll, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, names := newRoll(), c.names()
	text, err := c.textOf(ctx, names.Groups())
	if err != nil {
		return r, err
	}
	_, ids, ok := wire.DecodeGroups(text)
	if text != "" && !ok {
		return r, fmt.Errorf("%s: no process can have written %.40q", names.Groups(), text)
	}
	for _, id := range ids {
		now, err := c.rdb.Time(ctx).Result()
		if err != nil {
			return r, fmt.Errorf("TIME: %w", err)
		}
		n, err := c.rdb.ZCount(ctx, names.Group(id), strconv.FormatInt(now.UnixMicro(), 10), "+inf").Result()
		if err != nil {
			return r, fmt.Errorf("%s: %w", names.Group(id), err)
		}
		if text, err = c.textOf(ctx, names.GroupNames(id)); err != nil {
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
		r.said(name, limit, processes)
	}
}

// said adds processes that say a limit.
func (r *roll) said(limiter, limit string, processes int64) {
	if processes == 0 {
		return
	}
	if r.limits[limiter] == nil {
		r.limits[limiter] = map[string]int64{}
	}
	r.limits[limiter][limit] += processes
}

// textOf returns the text of a key, or "" if there is none. MGET takes a key of another type for none, so textOf asks
// once more with GET, for which not every user has the right.
func (c *connection) textOf(ctx context.Context, key string) (string, error) {
	got, err := c.rdb.MGet(ctx, key).Result()
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	if len(got) == 1 && got[0] != nil {
		text, _ := got[0].(string)
		return text, nil
	}
	text, err := c.rdb.Get(ctx, key).Result()
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
