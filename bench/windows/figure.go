package main

import (
	"bytes"
	"fmt"
)

// The figure is written by hand, for the same bytes everywhere.
const (
	width, height = 860, 620
	left, right   = 62, 830
	neutral       = "#7d828a" // 4 to 1 against white and against black
	faint         = "#7d828a40"
)

// strokes are of the first victims, in their order. The bucket's line is the
// sliding window's here, to the width of a stroke.
var strokes = []string{
	`stroke="#d64545" stroke-width="2"`, `stroke="#2f81f7" stroke-width="2"`, `stroke="#2da160" stroke-width="2"`,
}

// axes are one panel: from..to µs since the epoch, 0..high units.
type axes struct {
	top, bottom int
	from, to    int64
	high        int64
}

func (a axes) x(at int64) float64 {
	return left + float64(at-a.from)/float64(a.to-a.from)*(right-left)
}

func (a axes) y(units int64) float64 {
	return float64(a.bottom) - float64(units)/float64(a.high)*float64(a.bottom-a.top)
}

func (a axes) frame(b *bytes.Buffer, title string, every int64, label func(at int64) string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", left, a.top-8, title)
	for v := int64(0); v <= a.high; v += 50 {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="%s"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			left, a.y(v), right, faint, left-6, a.y(v)+4, v)
	}
	for at := a.from; at <= a.to; at += every {
		fmt.Fprintf(b, `<path d="M%.1f %dv5" stroke="%s"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			a.x(at), a.bottom, neutral, a.x(at), a.bottom+18, label(at))
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="%s"/>`+"\n", left, a.top, a.bottom, right, neutral)
	// Where windows begin, and the limit.
	for at := minute; at < a.to; at += minute {
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="%s" stroke-dasharray="1 3"/>`+"\n", a.x(at), a.top, a.bottom, neutral)
	}
	fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="%s" stroke-width="1.4" stroke-dasharray="8 4"/>`+"\n", left, a.y(rate), right, neutral)
}

// steps draws how a count goes by time: each change is a corner.
func (a axes) steps(b *bytes.Buffer, stroke string, changes []change) {
	fmt.Fprintf(b, `<path fill="none" %s d="M%.1f %.1f`, stroke, a.x(a.from), a.y(0))
	x, y := a.x(a.from), a.y(0)
	for i, c := range changes {
		// Of many in half a pixel the last is drawn.
		if last := i == len(changes)-1; !last && a.x(changes[i+1].at)-x < 0.5 {
			continue
		}
		if y != a.y(c.units) || x != a.x(c.at) {
			x, y = a.x(c.at), a.y(c.units)
			fmt.Fprintf(b, "H%.1fV%.1f", x, y)
		}
	}
	fmt.Fprintf(b, "H%d\"/>\n", right)
}

// change is a count from a time on.
type change struct{ at, units int64 }

// sums is how many units were admitted up to each time.
func sums(times []int64, until int64) (all []change) {
	for i, at := range times {
		if at <= until {
			all = append(all, change{at, int64(i + 1)})
		}
	}
	return all
}

// trailing is how many units were admitted in the minute up to each time.
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

// figure is the attack on each, close to the border and over three minutes.
func figure() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n", width, height, width, height, neutral)
	fmt.Fprintf(&b, "<title>A burst at the end of a window, then a flood</title>\n")
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="16" font-weight="600">A limit of %d a minute, a burst at the end of a window, then a flood</text>`+"\n", left, rate)
	for i, v := range victims[:len(strokes)] {
		x := left + 150*i
		fmt.Fprintf(&b, `<path d="M%d 44h24" fill="none" %s/><text x="%d" y="48">%s</text>`+"\n", x, strokes[i], x+30, v.name)
	}
	fmt.Fprintf(&b, `<path d="M%d 44h24" stroke="%s" stroke-width="1.4" stroke-dasharray="8 4"/><text x="%d" y="48">the limit</text>`+"\n", left+450, neutral, left+480)

	near := axes{top: 90, bottom: 270, from: minute - second/40, to: minute + second/40, high: 210}
	near.frame(&b, "admitted so far, units, 25 ms on either side of the border between two windows", second/200, func(at int64) string {
		return fmt.Sprintf("%+d ms", (at-minute)/1000)
	})
	far := axes{top: 340, bottom: 570, from: 0, to: 4 * minute, high: 210}
	far.frame(&b, "admitted in the minute up to now, units", minute/2, func(at int64) string { return fmt.Sprintf("%d s", at/second) })
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">dotted: where windows begin</text>`+"\n", right, height-8)
	for i := range strokes {
		times := victims[i].admitted(attack())
		near.steps(&b, strokes[i], sums(times, near.to))
		far.steps(&b, strokes[i], trailing(times, far.to))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
