package main

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// configured are the settings of a node that faults have changed. Faults of a mix
// change the same setting, and end in any order. The youngest active fault
// decides, and the end of the last one restores the value of before.
type configured struct {
	mu     sync.Mutex // held while Redis is told, so that it has the youngest value
	values map[string]*values
}

// values are those of one setting.
type values struct {
	before string
	active []*string // of faults, the youngest last
}

// set changes a setting until back succeeds.
func (c *configured) set(ctx context.Context, n *node, name, value string) (back func() error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.values[name]
	if v == nil {
		was, err := n.admin.ConfigGet(ctx, name).Result()
		if err != nil {
			return nil, err
		}
		v = &values{before: was[name]}
	}
	if err := n.do(ctx, "CONFIG", "SET", name, value); err != nil {
		return nil, err
	}
	if c.values == nil {
		c.values = map[string]*values{}
	}
	own := &value
	v.active, c.values[name] = append(v.active, own), v
	return func() error { return c.unset(ctx, n, name, own) }, nil
}

// unset ends one fault's value of a setting. After an error it may be called again.
func (c *configured) unset(ctx context.Context, n *node, name string, own *string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.values[name]
	if v == nil || !slices.Contains(v.active, own) {
		return nil // an earlier call has ended it
	}
	left := slices.DeleteFunc(slices.Clone(v.active), func(s *string) bool { return s == own })
	value := v.before
	if len(left) > 0 {
		value = *left[len(left)-1]
	}
	if err := n.do(ctx, "CONFIG", "SET", name, value); err != nil {
		return err
	}
	if v.active = left; len(left) == 0 {
		delete(c.values, name)
	}
	return nil
}

// config changes settings on every node, and returns a function that restores
// them.
func (s *scene) config(ctx context.Context, pairs ...string) (func() error, error) {
	var backs []func() error
	back := func() error {
		for _, b := range slices.Backward(backs) {
			if err := b(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range s.world.nodes {
		for i := 0; i < len(pairs); i += 2 {
			b, err := n.config.set(ctx, n, pairs[i], pairs[i+1])
			if err != nil {
				return nil, errors.Join(err, s.insist(ctx, back))
			}
			backs = append(backs, b)
		}
	}
	return back, nil
}
