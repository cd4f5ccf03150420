package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

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
		var bad hybridlimit.Violations
		bad.Add("-tags", 0, fmt.Sprintf("must be one of %v: the processes of limiter %q do not agree on HubConfig.Tags, so they share no state", of, c.name))
		return bad.Err("hybridlimit")
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

// members adds the deployments of the groups of a directory. Groups that do not say their number of tags have that of names.
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
