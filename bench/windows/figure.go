package main

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// The layout, in pixels.
const (
	width, height = 860, 620
	left, right   = 62, 830
)

// strokes has the strokes of the first victims, in order. The token bucket has
// none: its line would coincide with that of the sliding window.
var strokes = []benchkit.Stroke{{Colour: "#d64545", Width: 2}, {Colour: "#2f81f7", Width: 2}, {Colour: "#2da160", Width: 2}}

var (
	borderStroke = benchkit.Stroke{Colour: benchkit.Neutral, Dash: "1 3", Width: 1}
	limitStroke  = benchkit.Stroke{Colour: benchkit.Neutral, Dash: "8 4", Width: 1.4}
)

// axes are the axes of one panel: X from..to in µs since the epoch, Y from 0 to high units.
type axes struct {
	benchkit.Axes
	to int64
}

const high = 210

func newAxes(top, bottom int, from, to int64) axes {
	return axes{benchkit.Axes{Left: left, Right: right, Top: top, Bottom: bottom, X0: float64(from), X1: float64(to), Y1: high}, to}
}

func (a axes) frame(s *benchkit.SVG, title string, every int64, label func(at int64) string) {
	var xs, ys []benchkit.Tick
	for v := 0; v <= high; v += 50 {
		ys = append(ys, benchkit.Tick{At: float64(v), Label: fmt.Sprint(v)})
	}
	for at := int64(a.X0); at <= a.to; at += every {
		xs = append(xs, benchkit.Tick{At: float64(at), Label: label(at)})
	}
	a.Draw(s, title, xs, ys, "")
	// The begin of each window, and the limit.
	for at := minute; at < a.to; at += minute {
		s.Path(fmt.Sprintf("M%s %dV%d", benchkit.Pixels(a.X(float64(at))), a.Top, a.Bottom), borderStroke)
	}
	a.Across(s, float64(rate), limitStroke)
}

// steps draws a count over time, with a corner for each change.
func (a axes) steps(s *benchkit.SVG, stroke benchkit.Stroke, changes []change) {
	var path strings.Builder
	x, y := a.X(a.X0), a.Y(0)
	fmt.Fprintf(&path, "M%s %s", benchkit.Pixels(x), benchkit.Pixels(y))
	for i, c := range changes {
		// Of several changes within half a pixel only the last is drawn.
		if last := i == len(changes)-1; !last && a.X(float64(changes[i+1].at))-x < 0.5 {
			continue
		}
		if at, units := a.X(float64(c.at)), a.Y(float64(c.units)); y != units || x != at {
			x, y = at, units
			fmt.Fprintf(&path, "H%sV%s", benchkit.Pixels(x), benchkit.Pixels(y))
		}
	}
	fmt.Fprintf(&path, "H%d", right)
	s.Path(path.String(), stroke)
}

// change is a count that holds from a time on.
type change struct{ at, units int64 }

// sums returns the number of units admitted up to each time.
func sums(times []int64, until int64) (all []change) {
	for i, at := range times {
		if at <= until {
			all = append(all, change{at, int64(i + 1)})
		}
	}
	return all
}

// trailing returns the number of units admitted in the minute up to each time.
func trailing(times []int64, until int64) (all []change) {
	in, out := 0, 0
	for in < len(times) || out < in {
		if out < in && (in == len(times) || times[out]+minute <= times[in]) {
			out++
			all = append(all, change{times[out-1] + minute, int64(in - out)})
		} else {
			in++
			all = append(all, change{times[in-1], int64(in - out)})
		}
		if all[len(all)-1].at > until {
			return all[:len(all)-1]
		}
	}
	return all
}

// figure draws the attack on each victim, near the border and over three minutes.
func figure() []byte {
	s := benchkit.NewSVG(width, height, "A burst at the end of a window, then a flood")
	s.Text(left, 22, benchkit.Large, fmt.Sprintf("A limit of %d a minute, a burst at the end of a window, then a flood", rate))
	for i, v := range victims[:len(strokes)] {
		x := left + 150*i
		s.Path(fmt.Sprintf("M%d 44h24", x), strokes[i])
		s.Text(x+30, 48, "", v.name)
	}
	s.Path(fmt.Sprintf("M%d 44h24", left+450), limitStroke)
	s.Text(left+480, 48, "", "the limit")

	near := newAxes(90, 270, minute-second/40, minute+second/40)
	near.frame(s, "admitted so far, units, 25 ms on either side of the border between two windows", second/200, func(at int64) string {
		return fmt.Sprintf("%+d ms", (at-minute)/1000)
	})
	far := newAxes(340, 570, 0, 4*minute)
	far.frame(s, "admitted in the minute up to now, units", minute/2, func(at int64) string { return fmt.Sprintf("%d s", at/second) })
	s.Text(right, height-8, benchkit.Right, "dotted: where windows begin")
	for i, stroke := range strokes {
		times := victims[i].admitted(attack())
		near.steps(s, stroke, sums(times, near.to))
		far.steps(s, stroke, trailing(times, far.to))
	}
	return s.Bytes()
}
