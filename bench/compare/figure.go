package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
)

// The figures are written by hand, as the lab's: a plotting library would draw
// otherwise with its next version.
const (
	figWidth = 860
	figLeft  = 200 // of the axis; names are to the left
	figRight = 840
	rowHigh  = 20
	neutral  = "#7d828a" // 4 to 1 against white and against black
	faint    = "#7d828a40"
)

// colours are by the number of goroutines, in the order of the plan.
var colours = []string{"#2f81f7", "#d9722e", "#2da160", "#c2489b"}

// figures are pictures by their file's name.
func (p page) figures() map[string][]byte {
	out := map[string][]byte{}
	for _, w := range p.plan.workloads {
		out[w.Name+".svg"] = p.figure(w)
	}
	return out
}

// figure has a row for each limiter. To the left of it, dots: ns of a decision
// by the number of goroutines. Below, lines from the median to the slowest of
// single decisions, with a mark at p99 and p99.9.
func (p page) figure(w workload) []byte {
	rows := p.rows(w)
	const head = 62
	panel := len(rows)*rowHigh + 70
	height := head + 2*panel
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n", figWidth, height, figWidth, height, neutral)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(w.Title))
	label(&b, 12, 22, `font-size="16" font-weight="600"`, w.Title)
	x := 12
	for i, g := range p.plan.goroutines {
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="5" fill="%s"/>`+"\n", x+5, 38, colours[i%len(colours)])
		label(&b, x+16, 42, "", goroutines(g))
		x += 140
	}
	p.panel(&b, w, head, "a decision takes, by the wall: ns (logarithmic)", []string{"ns/op"})
	p.panel(&b, w, head+panel, "single decisions: p50 (dot), p99 and p99.9 (strokes), the longest of all (end of the line): ns (logarithmic)",
		[]string{"p50-ns", "p99-ns", "p99.9-ns", "max-ns"})
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// panel draws units of every limiter, the first as a dot.
func (p page) panel(b *bytes.Buffer, w workload, top int, title string, units []string) {
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
	label(b, 12, top+14, `font-weight="600"`, title)
	for e := lo; e <= hi; e++ {
		x := px(math.Pow(10, e))
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="%s"/>`+"\n", x, top+24, bottom, faint)
		label(b, int(x), bottom+16, `text-anchor="middle"`, duration(math.Pow(10, e)))
	}
	for i, r := range rows {
		y := top + 24 + i*rowHigh + rowHigh/2
		weight := ""
		if r.Module == "" && r.Name != nothing.Name {
			weight = ` font-weight="600"`
		}
		label(b, figLeft-10, y+4, `text-anchor="end"`+weight, plain(r.Name))
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
				fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="%s" stroke-width="1.4"/>`+"\n", px(first), at, px(last), colour)
				for _, u := range units[1 : len(units)-1] {
					if v := value(r.Name, u, g); v > 0 {
						fmt.Fprintf(b, `<path d="M%.1f %.1fv5" stroke="%s" stroke-width="1.8"/>`+"\n", px(v), at-2.5, colour)
					}
				}
			}
			radius := 5.0
			if len(units) > 1 {
				radius = 2.6
			}
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>`+"\n", px(first), at, radius, colour)
		}
	}
}

func label(b *bytes.Buffer, x, y int, attributes, s string) {
	if attributes != "" {
		attributes = " " + attributes
	}
	fmt.Fprintf(b, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, attributes, escape(s))
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}
