package benchkit

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestBetween(t *testing.T) {
	got, err := Between("a\n<from>\nold\n<to>\nz\n", "<from>\n", "<to>\n", "new\n")
	if want := "a\n<from>\nnew\n<to>\nz\n"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, page := range []string{"", "<from>\n", "<to>\n", "<to>\n<from>\n"} {
		if _, err := Between(page, "<from>\n", "<to>\n", "new\n"); err == nil {
			t.Errorf("%q: no error for a page without both lines", page)
		}
	}
}

func TestBound(t *testing.T) {
	for _, tc := range []struct {
		b    Bound
		got  float64
		want bool
	}{
		{Bound{Value: 2}, 2, true},
		{Bound{Value: 2}, 1.9, false},
		{Bound{Value: 2, Slack: 0.1}, 1.95, true},
		{Bound{Value: 2, AtMost: true}, 2, true},
		{Bound{Value: 2, AtMost: true}, 2.1, false},
		{Bound{Value: 2, AtMost: true, Slack: 0.2}, 2.1, true},
		{Bound{Value: 2}, math.NaN(), false},
		{Bound{Value: 2, AtMost: true}, math.NaN(), false},
		{Bound{Value: math.NaN(), AtMost: true}, 0, false},
	} {
		if got := tc.b.Holds(tc.got); got != tc.want {
			t.Errorf("%+v: Holds(%v) = %t", tc.b, tc.got, got)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -999: "-999", -123456: "-123,456"} {
		if got := Thousands(n, ","); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for x, want := range map[float64]string{0: "0", -0.01: "0", 0.25: "0.3", 12: "12", 3.14: "3.1"} {
		if got := Pixels(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}

func TestPicture(t *testing.T) {
	s := NewSVG(100, 50, "a < b")
	a := Axes{Left: 10, Right: 90, Top: 10, Bottom: 40, X0: 1, X1: 5, Y1: 3}
	if a.X(1) != 10 || a.X(5) != 90 || a.Y(0) != 40 || a.Y(3) != 10 {
		t.Error("values are not at the edges")
	}
	a.Draw(s, "title", []Tick{{1, "one"}}, []Tick{{3, "three"}}, "caption")
	a.Clip(s, "p", func() { s.Path("M1 1H2", Stroke{Colour: "red", Dash: "1 2", Width: 1.5}) })
	a.Across(s, 1.5, Stroke{Colour: Neutral})
	s.Dot(1, 2, 3, "blue")
	text := string(s.Bytes())
	for _, want := range []string{
		"<title>a &lt; b</title>", ">title<", ">one<", ">three<", ">caption<",
		`stroke-dasharray="1 2"`, `stroke-width="1.5"`, `d="M10 25H90"`, `<circle cx="1" cy="2" r="3"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestField(t *testing.T) {
	if field("no such file", "x") != "" || CPU() == "" || Kernel() == "" || Memory() == "" || LoadAverage() == "" {
		t.Error("a description is empty")
	}
}
