package main

import (
	"fmt"
	"math"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// The layout, in pixels.
const (
	figWidth = 860
	figLeft  = 200 // begin of the axis; the names are on its left
	figRight = 840
	rowHigh  = 20
)

// colours has a colour for each number of goroutines, in the order of the plan.
var colours = []string{"#2f81f7", "#d9722e", "#2da160", "#c2489b"}

// figures returns the pictures by file name.
func (p page) figures() map[string][]byte {
	out := map[string][]byte{}
	for _, w := range p.plan.workloads {
		out[w.Name+".svg"] = p.figure(w)
	}
	return out
}

// figure draws a row for each limiter. The upper panel has dots for the ns of a
// decision, one for each number of goroutines. The lower panel has lines from
// the median to the maximum of single decisions, with marks at p99 and p99.9.
func (p page) figure(w workload) []byte {
	rows := p.rows(w)
	const head = 62
	panel := len(rows)*rowHigh + 70
	s := benchkit.NewSVG(figWidth, head+2*panel, w.Title)
	s.Text(12, 22, benchkit.Large, w.Title)
	x := 12
	for i, g := range p.plan.goroutines {
		s.Dot(float64(x+5), 38, 5, colours[i%len(colours)])
		s.Text(x+16, 42, "", goroutines(g))
		x += 140
	}
	p.panel(s, w, head, "wall time of a decision: ns (logarithmic)", []string{"ns/op"})
	p.panel(s, w, head+panel, "single decisions: p50 (dot), p99 and p99.9 (strokes), maximum (end of the line): ns (logarithmic)",
		[]string{"p50-ns", "p99-ns", "p99.9-ns", "max-ns"})
	return s.Bytes()
}

// panel draws the given units of every limiter. The first unit is a dot.
func (p page) panel(s *benchkit.SVG, w workload, top int, title string, units []string) {
	rows := p.rows(w)
	lo, hi := math.Inf(1), 0.0
	value := func(name, unit string, g int) float64 {
		c := cell{name, w.Name, g}
		if unit == "max-ns" {
			return p.results.most(c, unit)
		}
		return p.results.center(c, unit)
	}
	for _, r := range rows {
		for _, g := range p.plan.goroutines {
			for _, u := range units {
				if v := value(r.Name, u, g); v > 0 {
					lo, hi = min(lo, v), max(hi, v)
				}
			}
		}
	}
	if hi == 0 {
		return
	}
	lo, hi = math.Floor(math.Log10(lo)), math.Ceil(math.Log10(hi)+1e-9)
	px := func(v float64) float64 { return figLeft + (math.Log10(v)-lo)/max(1, hi-lo)*(figRight-figLeft) }
	bottom := top + 24 + len(rows)*rowHigh
	s.Text(12, top+14, benchkit.Bold, title)
	for e := lo; e <= hi; e++ {
		x := px(math.Pow(10, e))
		s.Thin(fmt.Sprintf("M%s %dV%d", benchkit.Pixels(x), top+24, bottom), benchkit.Faint)
		s.Text(int(x), bottom+16, benchkit.Mid, duration(math.Pow(10, e)))
	}
	for i, r := range rows {
		y := top + 24 + i*rowHigh + rowHigh/2
		weight := ""
		if r.Module == "" && r.Name != nothing.Name {
			weight = " " + benchkit.Bold
		}
		s.Text(figLeft-10, y+4, benchkit.Right+weight, plain(r.Name))
		for j, g := range p.plan.goroutines {
			colour := colours[j%len(colours)]
			at := float64(y)
			if len(units) > 1 {
				at += 5 * (float64(j) - float64(len(p.plan.goroutines)-1)/2)
			}
			first := value(r.Name, units[0], g)
			if !(first > 0) {
				continue
			}
			if last := value(r.Name, units[len(units)-1], g); len(units) > 1 && last > 0 {
				s.Path(fmt.Sprintf("M%s %sH%s", benchkit.Pixels(px(first)), benchkit.Pixels(at), benchkit.Pixels(px(last))), benchkit.Stroke{Colour: colour, Width: 1.4})
				for _, u := range units[1 : len(units)-1] {
					if v := value(r.Name, u, g); v > 0 {
						s.Path(fmt.Sprintf("M%s %sv5", benchkit.Pixels(px(v)), benchkit.Pixels(at-2.5)), benchkit.Stroke{Colour: colour, Width: 1.8})
					}
				}
			}
			radius := 5.0
			if len(units) > 1 {
				radius = 2.6
			}
			s.Dot(px(first), at, radius, colour)
		}
	}
}
