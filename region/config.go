package region

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/moves"
)

// Config configures the limiter of one region. All processes of all regions have the same limit, Name, names of
// regions, Shares and Escrow, and hubs with the same Prefix, Tags and HashKeys. Nothing checks that: with different ones
// the promise does not hold.
type Config struct {
	// Name names the limiter, [A-Za-z0-9_.-]+, at most 123 bytes. Required. The hub gets a limiter of this name, and one
	// of calls in flight of this name with ".move" behind it, for the permits of movers.
	Name string
	// Here is the name of this region, [A-Za-z0-9_.-]+. Required.
	Here string
	// Hub is the hub of this region: of a Redis in it. Required. The caller closes it, after the limiter.
	Hub *hybrid.Hub
	// Others has a client of the Redis of each other region, by the name of the region. At least one. The clients are
	// used for keys that are denied here, only. The caller closes them, after the limiter.
	Others map[string]redis.UniversalClient
	// Shares is the fraction of the limit of each region, here included: above 0, together at most 1. It is rounded down
	// to a millionth. Nil: all regions have the same part of the whole limit.
	Shares map[string]float64
	// Escrow is the fraction of the burst that may be under way between regions, above 0 and at most 0.5. With more,
	// units come faster, and each region has fewer units at once. Zero: 0.25.
	Escrow float64
	// Limiter has more settings of this region's limiter. Its Name, Hub, LimitFor, Classes, MaxLease and Split must be
	// zero. An Overshoot of zero is 0.025 here, because the sum of N·C counts one C more than that of package hybrid.
	Limiter hybrid.Config
}

const (
	defaultEscrow = 0.25
	// defaultOvershoot is half of the default of package hybrid: N·C is at most twice (N-1)·C.
	defaultOvershoot = 0.025
	// permitsName is the end of the name of the limiter of permits.
	permitsName = ".move"
)

// violations returns what is wrong with a configuration, apart from the division of the limit.
func (c Config) violations(limit hybridlimit.Limit) (bad adapter.Violations) {
	bad.AddLimit(limit)
	unnamed := c.Name == "" || !adapter.CheckName(c.Name+permitsName)
	bad.AddIf(unnamed, "Config.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,123}")
	bad.AddIf(!adapter.CheckName(c.Here), "Config.Here", c.Here, "is required and must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(c.Hub == nil, "Config.Hub", nil, "is required")
	if !(c.Escrow >= 0 && c.Escrow <= 0.5) { // also NaN
		bad.Add("Config.Escrow", c.Escrow, "must be above 0 and at most 0.5, or 0 for 0.25")
	}
	c.checkOthers(&bad)
	c.checkShares(&bad)
	own := "must be zero: the limiter of a region gets it from region.Config"
	bad.AddIf(c.Limiter.Name != "", "Config.Limiter.Name", c.Limiter.Name, own)
	if !reflect.ValueOf(c.Limiter.Hub).IsZero() {
		bad.Add("Config.Limiter.Hub", "set", own)
	}
	bad.AddIf(c.Limiter.LimitFor != nil, "Config.Limiter.LimitFor", "set", "must be nil: all keys have one limit")
	bad.AddIf(c.Limiter.MaxLease != 0, "Config.Limiter.MaxLease", c.Limiter.MaxLease, "must be zero: units from other regions find room beside leases of 1s")
	bad.AddIf(c.Limiter.Split != nil, "Config.Limiter.Split", "set", "must be nil: units from other regions know no parts")
	bad.AddIf(len(c.Limiter.Classes) > 0, "Config.Limiter.Classes", len(c.Limiter.Classes), "must be nil: units from other regions know no floors")
	return bad
}

// checkOthers adds the violations of Others.
func (c Config) checkOthers(bad *adapter.Violations) {
	if len(c.Others) == 0 {
		bad.Add("Config.Others", len(c.Others), "needs at least one other region")
	}
	seen := map[redis.UniversalClient]string{}
	if c.Hub != nil {
		seen[moves.HomeOf(c.Hub).Client] = "Config.Hub"
	}
	for _, name := range slices.Sorted(maps.Keys(c.Others)) {
		field, client := fmt.Sprintf("Config.Others[%q]", name), c.Others[name]
		switch {
		case !adapter.CheckName(name):
			bad.Add(field, name, "is no name of a region: it must match [A-Za-z0-9_.-]{1,128}")
		case name == c.Here:
			bad.Add(field, name, "is this region: Others has the other ones")
		}
		v := reflect.ValueOf(client)
		switch {
		case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
			bad.Add(field, nil, "must be a client")
		case !v.Comparable(): // a wrapper
		case seen[client] != "":
			bad.Add(field, name, "has the client of "+seen[client]+": each region has a Redis of its own")
		default:
			seen[client] = field
		}
	}
}

// checkShares adds the violations of Shares, except those that depend on the limit.
func (c Config) checkShares(bad *adapter.Violations) {
	if c.Shares == nil {
		return
	}
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(c.Shares)) {
		field, s := fmt.Sprintf("Config.Shares[%q]", name), c.Shares[name]
		if !(s >= 1e-6 && s <= 1) { // also NaN
			bad.Add(field, s, "must be at least a millionth and at most 1")
		}
		if _, ok := c.Others[name]; !ok && name != c.Here {
			bad.Add(field, s, "is of no region: the regions are Here and those of Others")
		}
		sum += s
	}
	for _, name := range c.names() {
		if _, ok := c.Shares[name]; !ok {
			bad.Add("Config.Shares", name, "has no share of this region")
		}
	}
	if sum > 1+1e-6 {
		bad.Add("Config.Shares", math.Round(sum*1e6)/1e6, "must be at most 1 in sum")
	}
}

// names returns the names of all regions, sorted.
func (c Config) names() []string {
	names := append(slices.Collect(maps.Keys(c.Others)), c.Here)
	slices.Sort(names)
	return slices.Compact(names)
}

// shares returns the share of each region. It is for a configuration without violations.
func (c Config) shares() map[string]share {
	out, names := map[string]share{}, c.names()
	for _, name := range names {
		out[name] = share{1, int64(len(names))}
		if c.Shares != nil {
			out[name] = shareOf(c.Shares[name])
		}
	}
	return out
}

// parts checks a limit and divides it.
func (c Config) parts(limit hybridlimit.Limit) (map[string]part, error) {
	bad := c.violations(limit)
	err := bucket(limit)
	if len(bad) > 0 || err != nil {
		return nil, errors.Join(bad.Err(pkg), err)
	}
	escrow := c.Escrow
	if escrow == 0 {
		escrow = defaultEscrow
	}
	parts, bad := divide(limit, c.shares(), escrow)
	return parts, bad.Err(pkg)
}

// bucket returns ErrUnsupported for a limit that is no bucket.
func bucket(limit hybridlimit.Limit) error {
	switch limit.Algorithm {
	case hybridlimit.AlgTokenBucket, hybridlimit.AlgLeakyBucket:
		return nil
	}
	return fmt.Errorf("%s: %w: units of a limit that is no bucket (%v) cannot move between regions", pkg, hybridlimit.ErrUnsupported, limit)
}

const pkg = "region"
