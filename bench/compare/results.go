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

// cell is what is repeated each round.
type cell struct {
	rival, load string
	goroutines  int
}

// results are the rounds of each cell, by unit.
type results struct {
	cells map[cell]map[string][]float64
	key   map[string]float64 // bytes, by rival
}

// parse reads Go's format for benchmarks.
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
			if v.OrigUnit != "" { // benchfmt prefers seconds
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

// median is that of the rounds, and how far its 95 % interval reaches, as a
// part of it, both as benchstat has them; infinite with too few rounds.
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

// center is the median alone; NaN where there is none.
func (r results) center(c cell, unit string) float64 {
	m, _, ok := r.median(c, unit)
	if !ok {
		return math.NaN()
	}
	return m
}

// most is the largest of all rounds.
func (r results) most(c cell, unit string) float64 {
	if len(r.cells[c][unit]) == 0 {
		return math.NaN()
	}
	return slices.Max(r.cells[c][unit])
}

// ratio is that of two medians, and the least and the largest of a single
// round.
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
