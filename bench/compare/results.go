package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// cell identifies a measurement that is repeated in each round.
type cell struct {
	rival, load string
	goroutines  int
}

// results has the rounds of each cell. The figures are called after their units.
type results struct {
	cells map[cell]*benchkit.Row
	key   map[string]float64 // bytes of memory of a key, by rival
	origin
}

// parse reads Go's benchmark format.
func parse(raw []byte) (results, error) {
	res := results{cells: map[cell]*benchkit.Row{}, key: map[string]float64{}}
	r := benchfmt.NewReader(bytes.NewReader(raw), "rounds")
	for r.Scan() {
		var one *benchfmt.Result
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			one = rec
		case *benchfmt.SyntaxError:
			return res, rec
		default:
			continue
		}
		if len(res.cells)+len(res.key) == 0 {
			var err error
			if res.origin, err = readOrigin(one.GetConfig); err != nil {
				return res, err
			}
		}
		base, parts := one.Name.Parts()
		field := map[string]string{}
		for _, p := range parts {
			if k, v, ok := strings.Cut(strings.TrimPrefix(string(p), "/"), "="); ok {
				field[k] = v
			}
		}
		if string(base) == "Key" {
			res.key[field["rival"]], _ = one.Value("B/key")
			continue
		}
		g, err := strconv.Atoi(field["goroutines"])
		if string(base) != "Decide" || field["rival"] == "" || field["workload"] == "" || err != nil {
			return res, fmt.Errorf("no such benchmark: %s", one.Name)
		}
		c := cell{field["rival"], field["workload"], g}
		if res.cells[c] == nil {
			res.cells[c] = &benchkit.Row{}
		}
		f := benchkit.Figures{}
		for _, v := range one.Values {
			if f[v.Unit] = v.Value; v.OrigUnit != "" { // benchfmt converts to seconds
				f[v.OrigUnit] = v.OrigValue
			}
		}
		res.cells[c].Rounds = append(res.cells[c].Rounds, f)
	}
	if len(res.cells) == 0 {
		return res, errors.Join(errors.New("no results"), r.Err())
	}
	return res, r.Err()
}

// center returns the median of the rounds, or NaN if there is none.
func (r results) center(c cell, unit string) float64 { return r.cells[c].Median(unit) }

// spread returns the extent of the 95 % interval of the median as a share of the median, computed as in benchstat. It is
// infinite with too few rounds.
func (r results) spread(c cell, unit string) float64 {
	sample := benchmath.NewSample(r.cells[c].All(unit), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, 0.95)
	return max(s.Center-s.Lo, s.Hi-s.Center) / s.Center
}

// most returns the maximum of all rounds.
func (r results) most(c cell, unit string) float64 {
	all := r.cells[c].All(unit)
	if len(all) == 0 {
		return math.NaN()
	}
	return slices.Max(all)
}

// ratio returns the ratio of two medians, and the smallest and the largest ratio of a single round.
func (r results) ratio(a, b cell, unit string) (center, lo, hi float64, ok bool) {
	as, bs := r.cells[a].All(unit), r.cells[b].All(unit)
	if len(as) == 0 || len(as) != len(bs) {
		return 0, 0, 0, false
	}
	lo, hi = math.Inf(1), 0
	for i := range as {
		lo, hi = min(lo, as[i]/bs[i]), max(hi, as[i]/bs[i])
	}
	return r.center(a, unit) / r.center(b, unit), lo, hi, true
}

// origin describes the measurement. The file of rounds begins with it, as configuration of Go's benchmark format.
type origin struct {
	machine string            // and the revision of the code
	modules map[string]string // versions of the rivals by path
	slice   slice
}

func thisOrigin(revision string, d slice) origin {
	machine := fmt.Sprintf("%s, GOMAXPROCS %d, %s, %s, %s, redis-server %s; revision %s",
		benchkit.CPU(), runtime.GOMAXPROCS(0), benchkit.Memory(), benchkit.Kernel(), runtime.Version(),
		benchkit.RedisServer(), cmp.Or(revision, "unknown"))
	versions, modules := benchkit.Modules(), map[string]string{}
	for _, r := range everyone {
		if v := versions[r.Module]; v != "" {
			modules[r.Module] = v
		}
	}
	return origin{machine, modules, d}
}

func (o origin) String() string {
	var modules []string
	for _, path := range slices.Sorted(maps.Keys(o.modules)) {
		modules = append(modules, path+" "+o.modules[path])
	}
	return fmt.Sprintf("machine: %s\nmodules: %s\nturn: %v %v %v\n",
		o.machine, strings.Join(modules, ", "), o.slice.Warm, o.slice.Timed, o.slice.Single)
}

// readOrigin reads the configuration of a result.
func readOrigin(config func(key string) string) (o origin, err error) {
	o = origin{machine: config("machine"), modules: map[string]string{}}
	for module := range strings.SplitSeq(config("modules"), ", ") {
		path, version, _ := strings.Cut(module, " ")
		o.modules[path] = version
	}
	parts := strings.Fields(config("turn"))
	for i, part := range []*time.Duration{&o.slice.Warm, &o.slice.Timed, &o.slice.Single} {
		if len(parts) != 3 {
			return o, fmt.Errorf("turn: %q is not three durations", parts)
		}
		if *part, err = time.ParseDuration(parts[i]); err != nil {
			return o, err
		}
	}
	return o, nil
}
