package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// leased is the state of a key whose rate is leased.
type leased struct {
	part     lua.Part
	redisKey string
	text     string
	ttl      time.Duration
	wire.RateState
}

// leasedKey returns the state of a key whose rate is leased; nil: there is none.
func (c *connection) leasedKey(ctx context.Context, t target) (*leased, error) {
	part, ok := c.names().Parse(t.redisKey) // of the state, or of the leased rates
	if !ok || len(t.states) > 0 {
		return nil, nil
	}
	l := &leased{part: part, redisKey: c.plainNames().Rate(part.Tag, part.Limiter, part.Key)}
	var err error
	if l.text, l.ttl, err = c.calls.Stored(ctx, l.redisKey); err != nil || l.text == "" {
		return nil, err
	}
	if l.RateState, ok = wire.DecodeRate(l.text); !ok {
		return nil, fmt.Errorf("%s has a state that this version cannot read", l.redisKey)
	}
	return l, nil
}

// said describes the state in words.
func (l *leased) said() string {
	units := func(micro int64) float64 { return float64(micro) / ratelease.Micro }
	return fmt.Sprintf("when last written, at %s, Redis had %.1f of %.0f units left, and processes had leased %.4g of %.4g units a second, with at most %.1f units in hand",
		time.UnixMicro(l.Last).UTC().Format(time.RFC3339), units(l.Level), units(l.Burst), units(l.Leased), units(l.Rate), units(l.Depth))
}

// resetLeased makes the bucket of a key full whose rate is leased.
func (c *connection) resetLeased(ctx context.Context, t target, out *printer) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	l, err := c.leasedKey(ctx, t)
	if err != nil || l == nil {
		return false, err
	}
	lease := c.plainNames().Lease(l.part.Tag, "cli-"+rand.Text(), l.part.Limiter, l.part.Key) // of no process
	op := ratelease.Op{Terms: l.Terms, Number: 1, Procs: 1, Most: 1, Reset: true}
	if _, err := c.calls.Rates(ctx, []string{l.redisKey, lease}, []ratelease.Op{op}); err != nil {
		return false, err
	}
	out.value = struct {
		Name   string         `json:"name"`
		Key    string         `json:"key,omitempty"`
		Digest string         `json:"digest"`
		Before wire.RateState `json:"before"`
	}{c.name, t.key, t.digest, l.RateState}
	fmt.Fprintf(out, "%s %q: the bucket of the leased rate is full again; before: %s\n", c.name, t.said(), l.said())
	fmt.Fprintln(out, "Processes hear of it with their next exchange, within four seconds.")
	return true, nil
}
