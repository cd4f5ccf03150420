package accuracy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

type point struct{ x, y float64 }

type line struct {
	name   string
	style  benchkit.Stroke // without a width
	points []point
}

// panel is one pair of axes over time.
type panel struct {
	title string
	limit float64 // a horizontal line
	cut   float64 // the highest end of the y axis
	span  time.Duration
	lines []line
}

// The layout, in pixels.
const (
	width       = 860
	left        = 62 // left end of the axes
	right       = 842
	top         = 84  // top of the first panel's axes, below the titles and the legend
	panelHeight = 190 // height of the axes
	panelGap    = 62  // space for a panel's title and the labels of the axis above it
)

var limitStyle = benchkit.Stroke{Colour: "#d64545", Dash: "8 4", Width: 1.4}

// legend draws a row of strokes and names.
func (p panel) legend(s *benchkit.SVG, y int, limitName string) {
	x := left
	for _, l := range append(p.lines[:len(p.lines):len(p.lines)], line{name: limitName, style: limitStyle}) {
		l.style.Width = 2.5
		s.Path(fmt.Sprintf("M%d %dh24", x, y-4), l.style)
		s.Text(x+30, y, "", l.name)
		x += 30 + 7*utf8.RuneCountInString(l.name) + 24
	}
}

// draw draws the panel with its axes at y.
func (p panel) draw(s *benchkit.SVG, y, number int) {
	high := p.limit
	for _, l := range p.lines {
		for _, at := range l.points {
			high = max(high, at.y)
		}
	}
	title := p.title
	if high > p.cut {
		title += fmt.Sprintf("; cut off, the maximum is %s", short(math.Round(high)))
		high = p.cut
	}
	step := niceStep(high / 4)
	if high < p.cut {
		high = step * math.Ceil(high*1.02/step)
	}
	a := benchkit.Axes{Left: left, Right: right, Top: y, Bottom: y + panelHeight, X1: p.span.Seconds(), Y1: high}
	times := ticks(p.span.Seconds(), niceStep(p.span.Seconds()/10))
	a.Draw(s, title, times, ticks(high, step), "seconds since the load started")
	a.Clip(s, fmt.Sprintf("p%d", number), func() {
		for _, l := range p.lines {
			var points []string
			for _, at := range l.points {
				points = append(points, benchkit.Pixels(a.X(at.x))+" "+benchkit.Pixels(a.Y(at.y)))
			}
			l.style.Width = 1.6
			s.Path("M"+strings.Join(points, "L"), l.style)
		}
	})
	a.Across(s, p.limit, limitStyle)
}

// ticks returns the multiples of step from 0 to last.
func ticks(last, step float64) (all []benchkit.Tick) {
	for v := 0.0; v <= last*1.0001; v += step {
		all = append(all, benchkit.Tick{At: v, Label: short(v)})
	}
	return all
}

// niceStep returns the smallest of 1, 2, 5, 10, … that is at least x.
func niceStep(x float64) float64 {
	if x <= 0 {
		return 1
	}
	size := math.Pow(10, math.Floor(math.Log10(x)))
	for _, k := range []float64{1, 2, 5} {
		if k*size >= x*0.9999 {
			return k * size
		}
	}
	return 10 * size
}

// short formats a number for an axis, with separated thousands.
func short(x float64) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(benchkit.Round(x, 2), 'f', -1, 64), ".")
	n, _ := strconv.ParseInt(whole, 10, 64)
	whole = benchkit.Thousands(n, " ")
	if fraction != "" {
		whole += "." + fraction
	}
	return whole
}
