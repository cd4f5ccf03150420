package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/parts"
	"github.com/hybridlimit/hybridlimit/lua"
)

// This file has split keys: see hybrid.Config.Split. Redis has a state of each part.

// partState is the state of one part of a split key.
type partState struct {
	part     parts.Part
	redisKey string
}

// join adds the state of another part of the key.
func (r *row) join(o row) {
	r.found += o.found
	r.Debited, r.Second, r.Leased = r.Debited+o.Debited, r.Second+o.Second, r.Leased+o.Leased
	r.amount, r.empty = r.amount+o.amount, r.empty+o.empty
	r.age, r.ttl, r.Parts = min(r.age, o.age), max(r.ttl, o.ttl), max(r.Parts, o.Parts)
	r.write()
}

// findParts finds the parts of a key that is split into so many, or into as many as processes say. The key is whole if
// Redis has a state of none of these.
func (c *connection) findParts(ctx context.Context, t *target, tag, split int, live said) error {
	sure := split > 0
	split, err := c.partsSaid(split, live)
	if split < 2 || err != nil {
		return err
	}
	all := statesOf(c.names(), tag, c.name, t.key, split)
	some, err := c.some(ctx, all)
	if err == nil && (sure || some >= 0) {
		t.redisKey, t.states = all[max(0, some)].redisKey, all
	}
	return err
}

// partsSaid returns split, or if that is 0, the largest number of parts that processes of the limiter say.
func (c *connection) partsSaid(split int, live said) (int, error) {
	if split > 0 {
		return split, nil
	}
	all, err := live()
	return int(min(all.of[c.name].parts, int64(c.tags))), err
}

// statesOf returns the parts of a key with a tag, if it is split into so many.
func statesOf(names lua.Names, tag int, limiter, key string, split int) (all []partState) {
	for nth := 1; nth <= split && split > 1; nth++ {
		all = append(all, partState{
			part:     parts.Part{Nth: uint16(nth), Of: uint16(split)},
			redisKey: names.PartState(names.PartTag(tag, nth, split), limiter, nth, split, key),
		})
	}
	return all
}

// statesWith returns all parts of the split key of which a Redis key is one.
func (c *connection) statesWith(p lua.Part) []partState {
	if p.Of < 2 {
		return nil
	}
	names := c.plainNames()
	return statesOf(names, names.KeyTag(p.Tag, p.Nth, p.Of), p.Limiter, p.Key, p.Of)
}

// some returns the place of the first state that Redis has, or -1.
func (c *connection) some(ctx context.Context, all []partState) (int, error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ttls := make([]*redis.DurationCmd, len(all))
	_, err := c.rdb.Pipelined(bounded, func(p redis.Pipeliner) error {
		for i, s := range all {
			ttls[i] = p.PTTL(bounded, s.redisKey)
		}
		return nil
	})
	if err != nil {
		return -1, fmt.Errorf("hybridlimit: %w", err)
	}
	return slices.IndexFunc(ttls, func(ttl *redis.DurationCmd) bool { return ttl.Val() != -2 }), nil // -2: no such key
}

// look reads the state of a key under a limit: that of a Redis key, or those of the parts of a split key.
func (c *connection) look(ctx context.Context, states []partState, redisKey string, limit hybridlimit.Limit) (hybridlimit.KeyState, error) {
	return eachPart(states, redisKey, limit, func(redisKey string, limit hybridlimit.Limit) (hybridlimit.KeyState, error) {
		return c.calls.Look(ctx, redisKey, limit)
	})
}

// eachPart asks about each part of a split key, or about a whole key, and joins the answers.
func eachPart(
	states []partState, redisKey string, limit hybridlimit.Limit, ask func(string, hybridlimit.Limit) (hybridlimit.KeyState, error),
) (k hybridlimit.KeyState, err error) {
	if len(states) == 0 {
		return ask(redisKey, limit)
	}
	if err := parts.Check(limit, int(states[0].part.Of), lua.MaxTags); err != nil {
		return k, err
	}
	var all []hybridlimit.KeyState
	for _, s := range states {
		if k, err = ask(s.redisKey, s.part.Limit(limit)); err != nil {
			return k, err
		}
		all = append(all, k)
	}
	return parts.Join(limit, all), nil
}
