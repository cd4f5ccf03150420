package main

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// roll is the processes of a deployment, as their heartbeats count them.
type roll struct {
	of       map[string]int64 // by limiter
	accounts map[string]int64 // by limiter; a process has an account for each class of the limiter
	unknown  int64            // processes whose limiters are not known
}

// processes returns N of a limiter. It includes processes whose limiters are not
// known, as the fleet does.
func (r roll) processes(limiter string) int64 { return r.of[limiter] + r.unknown }

// roll counts the processes of all limiters. It costs two messages, and two for each
// group of processes with the same limiters.
func (c *connection) roll(ctx context.Context, rdb redis.UniversalClient) (roll, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, names := roll{of: map[string]int64{}, accounts: map[string]int64{}}, c.names()
	text, err := textOf(ctx, rdb, names.Groups())
	if err != nil {
		return r, err
	}
	_, ids, _ := wire.DecodeGroups(text) // the fleet treats a directory that is unreadable as lost
	for _, id := range ids {
		now, err := rdb.Time(ctx).Result()
		if err != nil {
			return r, err
		}
		n, err := rdb.ZCount(ctx, names.Group(id), strconv.FormatInt(now.UnixMicro(), 10), "+inf").Result()
		if err != nil {
			return r, err
		}
		if text, err = textOf(ctx, rdb, names.GroupNames(id)); err != nil {
			return r, err
		}
		limiters := groups.Parse(id, text)
		if limiters == nil {
			r.unknown += n
		}
		for name, classes := range limiters {
			r.of[name] += n
			r.accounts[name] += n * classes
		}
	}
	return r, nil
}

// textOf returns the text of a key, or "" if there is none.
func textOf(ctx context.Context, rdb redis.UniversalClient, key string) (string, error) {
	got, err := rdb.MGet(ctx, key).Result() // the documented rights have no GET for every user
	if err != nil || len(got) != 1 {
		return "", err
	}
	text, _ := got[0].(string)
	return text, nil
}
