package benchkit

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// Colours of text and axes. Their contrast is 4 to 1 on white and on black.
const (
	Neutral = "#7d828a"
	Faint   = "#7d828a40"
)

// Attributes of texts and lines.
const (
	Bold  = `font-weight="600"`
	Large = `font-size="16" ` + Bold
	Right = `text-anchor="end"`
	Mid   = `text-anchor="middle"`
)

// SVG is a picture. Lengths are in pixels.
type SVG struct{ b bytes.Buffer }

// NewSVG returns an empty picture.
func NewSVG(width, height int, title string) *SVG {
	s := &SVG{}
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n", width, height, width, height, Neutral)
	fmt.Fprintf(&s.b, "<title>%s</title>\n", escape(title))
	return s
}

// Bytes ends the picture and returns it.
func (s *SVG) Bytes() []byte {
	s.b.WriteString("</svg>\n")
	return s.b.Bytes()
}

// Text writes a text whose left end, or the point that the attributes name, is at x, y.
func (s *SVG) Text(x, y int, attributes, text string) {
	if attributes != "" {
		attributes = " " + attributes
	}
	fmt.Fprintf(&s.b, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, attributes, escape(text))
}

// Stroke is the style of a line.
type Stroke struct {
	Colour string
	Dash   string // lengths of strokes and gaps; "": a solid line
	Width  float64
}

// Path draws a line along SVG path commands.
func (s *SVG) Path(path string, k Stroke) {
	dash := ""
	if k.Dash != "" {
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, k.Dash)
	}
	fmt.Fprintf(&s.b, `<path d="%s" fill="none" stroke="%s" stroke-width="%s" stroke-linejoin="round"%s/>`+"\n",
		path, k.Colour, Pixels(k.Width), dash)
}

// Thin draws a line one pixel wide.
func (s *SVG) Thin(path, colour string) {
	fmt.Fprintf(&s.b, `<path d="%s" stroke="%s"/>`+"\n", path, colour)
}

// Dot draws a filled circle.
func (s *SVG) Dot(x, y, radius float64, colour string) {
	fmt.Fprintf(&s.b, `<circle cx="%s" cy="%s" r="%s" fill="%s"/>`+"\n", Pixels(x), Pixels(y), Pixels(radius), colour)
}

// Axes is a panel: a rectangle in the picture, and the values at its edges.
type Axes struct {
	Left, Right, Top, Bottom int
	X0, X1, Y0, Y1           float64 // Y0 is at the bottom
}

// Tick is a value on an axis and its label.
type Tick struct {
	At    float64
	Label string
}

// X returns the position of a value.
func (a Axes) X(v float64) float64 {
	return float64(a.Left) + (v-a.X0)/(a.X1-a.X0)*float64(a.Right-a.Left)
}

// Y returns the position of a value.
func (a Axes) Y(v float64) float64 {
	return float64(a.Bottom) - (v-a.Y0)/(a.Y1-a.Y0)*float64(a.Bottom-a.Top)
}

// Draw draws the title, a horizontal line for each tick of ys, a mark for each tick of xs with a caption below, and the
// axes.
func (a Axes) Draw(s *SVG, title string, xs, ys []Tick, caption string) {
	s.Text(a.Left, a.Top-8, Bold, title)
	for _, t := range ys {
		s.Thin(fmt.Sprintf("M%d %sH%d", a.Left, Pixels(a.Y(t.At)), a.Right), Faint)
		s.Text(a.Left-6, int(math.Round(a.Y(t.At)))+4, Right, t.Label)
	}
	for _, t := range xs {
		s.Thin(fmt.Sprintf("M%s %dv5", Pixels(a.X(t.At)), a.Bottom), Neutral)
		s.Text(int(math.Round(a.X(t.At))), a.Bottom+18, Mid, t.Label)
	}
	if caption != "" {
		s.Text(a.Right, a.Bottom+32, Right, caption)
	}
	fmt.Fprintf(&s.b, `<path d="M%d %dV%dH%d" fill="none" stroke="%s"/>`+"\n", a.Left, a.Top, a.Bottom, a.Right, Neutral)
}

// Clip clips everything that draw draws to the panel. The id must be unique in the picture.
func (a Axes) Clip(s *SVG, id string, draw func()) {
	fmt.Fprintf(&s.b, `<clipPath id="%s"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`+
		"\n<g clip-path=\"url(#%s)\">\n",
		id, a.Left, a.Top, a.Right-a.Left, a.Bottom-a.Top, id)
	draw()
	s.b.WriteString("</g>\n")
}

// Across draws a horizontal line at a value.
func (a Axes) Across(s *SVG, v float64, k Stroke) {
	s.Path(fmt.Sprintf("M%d %sH%d", a.Left, Pixels(a.Y(v)), a.Right), k)
}

// Pixels formats a length with at most one decimal. More decimals would make the bytes differ without a visible change.
func Pixels(x float64) string { return strconv.FormatFloat(Round(x, 1), 'f', -1, 64) }

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writes to a buffer cannot fail
	return b.String()
}
