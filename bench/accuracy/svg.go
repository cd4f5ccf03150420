package accuracy

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The pictures are written by hand: a plotting library would be the module's
// largest dependency, and its output would change with its versions.

type point struct{ x, y float64 }

type lineStyle struct{ colour, dash string }

type line struct {
	name   string
	style  lineStyle
	points []point
}

// panel is one pair of axes over time.
type panel struct {
	title string
	limit float64 // drawn across
	cut   float64 // nothing above it is shown
	span  time.Duration
	lines []line
}

type drawing struct {
	title, about string
	limitName    string
	panels       []panel
}

// The layout, in pixels.
const (
	width       = 860
	left        = 62 // of the axes
	right       = 842
	top         = 84  // of the first panel's axes, below the titles and the legend
	panelHeight = 190 // of the axes
	panelGap    = 62  // for a panel's title and the axis above it

	neutral = "#7d828a" // text and axes: 4 to 1 against white and against black
	faint   = "#7d828a40"
)

var limitStyle = lineStyle{colour: "#d64545", dash: "8 4"}

func (d drawing) svg() []byte {
	height := top + len(d.panels)*(panelHeight+panelGap) - 14
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n", width, height, width, height, neutral)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(d.title))
	text(&b, left, 20, `font-size="16" font-weight="600"`, d.title)
	text(&b, left, 38, `font-size="11"`, d.about)
	for i, p := range d.panels {
		y := top + i*(panelHeight+panelGap)
		if i == 0 {
			p.legend(&b, 56, d.limitName)
		}
		p.draw(&b, float64(y), i)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// legend is one row of strokes and names.
func (p panel) legend(b *bytes.Buffer, y int, limitName string) {
	x := left
	for _, l := range append(p.lines[:len(p.lines):len(p.lines)], line{name: limitName, style: limitStyle}) {
		stroke(b, fmt.Sprintf("M%d %dh24", x, y-4), l.style, 2.5)
		text(b, x+30, y, "", l.name)
		x += 30 + 7*utf8.RuneCountInString(l.name) + 24
	}
}

// draw puts the axes at y and everything into them.
func (p panel) draw(b *bytes.Buffer, y float64, number int) {
	bottom := y + panelHeight
	high, low := p.limit, 0.0
	for _, l := range p.lines {
		for _, at := range l.points {
			high = max(high, at.y)
		}
	}
	title := p.title
	if high > p.cut {
		title += fmt.Sprintf("; cut off, the highest is %s", short(math.Round(high)))
		high = p.cut
	}
	step := niceStep((high - low) / 4)
	if high < p.cut {
		high = step * math.Ceil(high*1.02/step)
	}
	px := func(x float64) float64 { return left + x/p.span.Seconds()*(right-left) }
	py := func(v float64) float64 { return bottom - (v-low)/(high-low)*panelHeight }

	text(b, left, int(y)-8, `font-size="12" font-weight="600"`, title)
	for v := low; v <= high*1.0001; v += step {
		fmt.Fprintf(b, `<path d="M%d %sH%d" stroke="%s"/>`+"\n", left, coordinate(py(v)), right, faint)
		text(b, left-6, int(math.Round(py(v)))+4, `text-anchor="end"`, short(v))
	}
	every := niceStep(p.span.Seconds() / 10)
	for s := 0.0; s <= p.span.Seconds()*1.0001; s += every {
		fmt.Fprintf(b, `<path d="M%s %sv5" stroke="%s"/>`+"\n", coordinate(px(s)), coordinate(bottom), neutral)
		text(b, int(math.Round(px(s))), int(bottom)+18, `text-anchor="middle"`, short(s))
	}
	text(b, right, int(bottom)+32, `text-anchor="end"`, "seconds since the load started")
	fmt.Fprintf(b, `<path d="M%d %sV%sH%d" fill="none" stroke="%s"/>`+"\n", left, coordinate(y), coordinate(bottom), right, neutral)

	fmt.Fprintf(b, `<clipPath id="p%d"><rect x="%d" y="%s" width="%d" height="%d"/></clipPath>`+"\n<g clip-path=\"url(#p%d)\">\n",
		number, left, coordinate(y), right-left, panelHeight, number)
	for _, l := range p.lines {
		var path strings.Builder
		for i, at := range l.points {
			command := "L"
			if i == 0 {
				command = "M"
			}
			path.WriteString(command + coordinate(px(at.x)) + " " + coordinate(py(at.y)))
		}
		stroke(b, path.String(), l.style, 1.6)
	}
	b.WriteString("</g>\n")
	stroke(b, fmt.Sprintf("M%d %sH%d", left, coordinate(py(p.limit)), right), limitStyle, 1.4)
}

func stroke(b *bytes.Buffer, path string, s lineStyle, width float64) {
	dash := ""
	if s.dash != "" {
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, s.dash)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="%s" stroke-linejoin="round"%s/>`+"\n",
		path, s.colour, coordinate(width), dash)
}

func text(b *bytes.Buffer, x, y int, attributes, s string) {
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

// coordinate has a tenth of a pixel: more would be noise in the bytes.
func coordinate(x float64) string { return strconv.FormatFloat(digits(x, 1), 'f', -1, 64) }

// niceStep is the smallest of 1, 2, 5, 10, … that is at least x.
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

// short writes a number on an axis, thousands apart.
func short(x float64) string {
	s := strconv.FormatFloat(digits(x, 2), 'f', -1, 64)
	whole, fraction, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return whole
}
