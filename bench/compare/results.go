package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// cell identifies a measurement that is repeated in each round.
type cell struct {
	rival, load string
	goroutines  int
}

// results has the rounds of each cell, by unit.
type results struct {
	cells map[cell]map[string][]float64
	key   map[string]float64 // bytes of memory of a key, by rival
	origin
}

// parse reads Go's benchmark format.
func parse(raw []byte) (results, error) {
	res := results{cells: map[cell]map[string][]float64{}, key: map[string]float64{}}
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
			res.cells[c] = map[string][]float64{}
		}
		for _, v := range one.Values {
			unit, x := v.Unit, v.Value
			if v.OrigUnit != "" { // benchfmt converts to seconds
				unit, x = v.OrigUnit, v.OrigValue
			}
			res.cells[c][unit] = append(res.cells[c][unit], x)
		}
	}
	if len(res.cells) == 0 {
		return res, errors.Join(errors.New("no results"), r.Err())
	}
	return res, r.Err()
}

// median returns the median of the rounds, and the extent of its 95 % interval as a share of the median, both computed
// as in benchstat. The extent is infinite with too few rounds.
func (r results) median(c cell, unit string) (center, spread float64, ok bool) {
	values := r.cells[c][unit]
	if len(values) == 0 {
		return 0, 0, false
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), 0.95)
	if s.Center == 0 {
		return 0, 0, true
	}
	return s.Center, max(s.Center-s.Lo, s.Hi-s.Center) / s.Center, true
}

// center returns the median alone, or NaN if there is none.
func (r results) center(c cell, unit string) float64 {
	m, _, ok := r.median(c, unit)
	if !ok {
		return math.NaN()
	}
	return m
}

// most returns the maximum of all rounds.
func (r results) most(c cell, unit string) float64 {
	if len(r.cells[c][unit]) == 0 {
		return math.NaN()
	}
	return slices.Max(r.cells[c][unit])
}

// ratio returns the ratio of two medians, and the smallest and the largest ratio of a single round.
func (r results) ratio(a, b cell, unit string) (center, lo, hi float64, ok bool) {
	as, bs := r.cells[a][unit], r.cells[b][unit]
	if len(as) == 0 || len(as) != len(bs) {
		return 0, 0, 0, false
	}
	lo, hi = math.Inf(1), 0
	for i := range as {
		lo, hi = min(lo, as[i]/bs[i]), max(hi, as[i]/bs[i])
	}
	return r.center(a, unit) / r.center(b, unit), lo, hi, true
}
