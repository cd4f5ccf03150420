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
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// roll is the processes of a prefix, as their heartbeats count them.
type roll struct {
	of      map[string]counted // by limiter
	unknown int64              // processes whose limiters are not known
}

// counted is the processes of a limiter.
type counted struct {
	count    int64
	accounts int64            // a process has an account for each class of the limiter
	limits   map[string]int64 // processes by limit, as text
	tags     int              // of the deployment
	parts    int64            // the largest number of parts of a split key that a process says
}

// limit returns the limit that the processes say, if they say one and the same.
func (m counted) limit() (limit hybridlimit.Limit, ok bool) {
	for text := range m.limits {
		parsed, _, err := readSaid(text)
		return parsed, err == nil && len(m.limits) == 1
	}
	return limit, false
}

// readSaid reads the text of a limit that a process says. leased: processes lease its rate.
func readSaid(text string) (limit hybridlimit.Limit, leased bool, err error) {
	text, leased = strings.CutPrefix(text, ratelease.Said)
	limit, err = hybridlimit.ParseLimit(text)
	return limit, leased, err
}

// limitsSaid describes the limits of a limiter: "100/s", or "100/s (2 processes), 200/s (1 processes)"; "" if none is
// known.
func (r roll) limitsSaid(limiter string) string {
	of := r.of[limiter].limits
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
func (r roll) processes(limiter string) int64 { return r.of[limiter].count + r.unknown }

// roll counts the processes of all limiters, of all deployments that findTags has found. It costs two messages, and two
// for each group of processes with the same limiters.
func (c *connection) roll(ctx context.Context) (roll, error) {
	r, all := roll{of: map[string]counted{}}, c.all
	if len(all) == 0 {
		all = []int{c.tags}
	}
	for _, tags := range all {
		if err := c.addTo(ctx, &r, tags); err != nil {
			return r, err
		}
	}
	return r, nil
}

// addTo adds the processes of one deployment.
func (c *connection) addTo(ctx context.Context, r *roll, tags int) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	names := lua.Names{Prefix: c.prefix, Tags: tags}
	text, err := c.textOf(ctx, names.Groups())
	if err != nil {
		return err
	}
	_, ids, ok := wire.DecodeGroups(text)
	if text != "" && !ok {
		return fmt.Errorf("%s: no process can have written %.40q", names.Groups(), text)
	}
	for _, id := range ids {
		now, err := c.rdb.Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("TIME: %w", err)
		}
		n, err := c.rdb.ZCount(ctx, names.Group(id), strconv.FormatInt(now.UnixMicro(), 10), "+inf").Result()
		if err != nil {
			return fmt.Errorf("%s: %w", names.Group(id), err)
		}
		if text, err = c.textOf(ctx, names.GroupNames(id)); err != nil {
			return err
		}
		r.add(groups.Parse(id, text), n, tags)
	}
	return nil
}

// add adds the processes of a group. said is nil if its names are not known.
func (r *roll) add(said *groups.Names, processes int64, tags int) {
	if said == nil {
		r.unknown += processes
		return
	}
	for name, classes := range said.Classes {
		m := r.of[name]
		if m.limits == nil {
			m.limits = map[string]int64{}
		}
		if limit, ok := said.Limits[name]; ok && processes > 0 {
			m.limits[limit] += processes
		}
		m.count, m.accounts, m.tags = m.count+processes, m.accounts+processes*classes, tags
		m.parts = max(m.parts, said.Parts[name])
		r.of[name] = m
	}
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

// deployments is the numbers of tags of the processes of a prefix, and the limiters of each.
type deployments map[int]map[string]bool

// findTags sets the number of tags to that of the processes which have the limiter, unless -tags says it. Without such
// processes it is that of the only deployment of the prefix, or else the default. Without a name it also sets all.
func (c *connection) findTags(ctx context.Context) error {
	if c.tags > 0 {
		return nil
	}
	d, err := c.deployments(ctx)
	if err != nil && !refused(err) { // the command tells the cause when it asks again
		d = nil
	}
	all := slices.Sorted(maps.Keys(d))
	of := slices.DeleteFunc(slices.Clone(all), func(tags int) bool { return c.name != "" && !d[tags][c.name] })
	switch {
	case len(of) == 1:
		c.tags = of[0]
	case len(of) == 0 && len(all) == 1:
		c.tags = all[0]
	case len(of) > 1 && c.name != "":
		return invalid("-tags", 0, fmt.Sprintf("must be one of %v: the processes of limiter %q do not agree on HubConfig.Tags, so they share no state", of, c.name))
	default:
		c.tags = lua.DefaultTags
	}
	if c.name == "" {
		c.all = of
	}
	return nil
}

// likelyTags is the numbers of tags whose directories of groups the tool looks for: all up to 256, and powers of two.
// The usual ones come first.
var likelyTags = func() []int {
	all := []int{lua.DefaultTags, 1}
	for tags := 2; tags <= 256; tags++ {
		all = append(all, tags)
	}
	for tags := 512; tags <= lua.MaxTags; tags *= 2 {
		all = append(all, tags)
	}
	return all
}()

// deployments reads the directories of groups. It costs one message to each server, and one for each group.
func (c *connection) deployments(ctx context.Context) (deployments, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	of := map[string]int{} // the number of tags of a directory, if its groups do not say it
	var directories []string
	for _, tags := range likelyTags {
		key := lua.Names{Prefix: c.prefix, Tags: tags}.Groups()
		if _, known := of[key]; !known {
			of[key], directories = tags, append(directories, key)
		}
	}
	got, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range directories {
			p.MGet(ctx, key)
		}
		return nil
	})
	d := deployments{}
	for i, cmd := range got {
		values := cmd.(*redis.SliceCmd).Val()
		if len(values) != 1 || values[0] == nil {
			continue
		}
		text, _ := values[0].(string)
		_, ids, _ := wire.DecodeGroups(text)
		if err := c.members(ctx, lua.Names{Prefix: c.prefix, Tags: of[directories[i]]}, ids, d); err != nil {
			return d, err
		}
	}
	return d, err
}

// members adds the deployments of the groups of a directory. Groups that do not say their number of tags have that of
// names.
func (c *connection) members(ctx context.Context, names lua.Names, ids []string, d deployments) error {
	for _, id := range ids {
		text, err := c.textOf(ctx, names.GroupNames(id))
		if err != nil {
			return err
		}
		said, tags := groups.Parse(id, text), names.Tags
		if said != nil && said.Tags > 0 && said.Tags <= lua.MaxTags {
			tags = said.Tags
		}
		if d[tags] == nil {
			d[tags] = map[string]bool{}
		}
		if said != nil {
			for name := range said.Classes {
				d[tags][name] = true
			}
		}
	}
	return nil
}
