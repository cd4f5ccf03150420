package accuracy

import (
	"cmp"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// Plot is a picture of one scenario.
type Plot struct {
	Title string
	File  string // file name
	runs  []Run
}

// Plots returns the pictures that the families ask for.
func (r *Result) Plots() (all []Plot) {
	for _, run := range r.runs {
		f := run.Case.Family
		if f.Plot != run.Case.Factor {
			continue
		}
		if len(all) == 0 || all[len(all)-1].File != f.Name+".svg" {
			all = append(all, Plot{Title: fmt.Sprintf("%s, load %s", f.Title, number(f.Plot)), File: f.Name + ".svg"})
		}
		last := &all[len(all)-1]
		last.runs = append(last.runs, run)
	}
	return all
}

// SVG draws the scenario in two panels. The upper panel shows the units that each limiter admits a second, and the
// rate. The lower panel shows the level of one bucket that leaks at the rate and takes all admitted units. A level
// above the burst is beyond the limit.
func (p Plot) SVG() []byte {
	limit, burst := p.runs[0].Case.limit(), p.runs[0].Case.burst()
	rate, span := float64(limit.Rate)/limit.Period.Seconds(), p.runs[0].Case.Family.Span

	above := panel{title: "admitted, units a second (mean of 0.3 s)", limit: rate, cut: 2.5 * rate, span: span}
	below := panel{title: "level of one bucket that takes all admitted units", limit: burst, cut: 3 * burst, span: span}
	for _, run := range p.runs {
		style := styles[cmp.Or(run.Case.Rate.Kind, fleet.Kind(run.Case.Kind))]
		above.lines = append(above.lines, line{run.Case.Kind, style, speed(run.timeline)})
		below.lines = append(below.lines, line{run.Case.Kind, style, level(run.timeline, rate)})
	}
	svg := benchkit.NewSVG(width, top+2*(panelHeight+panelGap)-14, p.Title)
	svg.Text(left, 20, benchkit.Large, p.Title)
	svg.Text(left, 38, `font-size="11"`, p.runs[0].Case.Family.Setting)
	above.legend(svg, 56, fmt.Sprintf("the limit (%s/s; burst %s)", short(rate), short(burst)))
	above.draw(svg, top, 0)
	below.draw(svg, top+panelHeight+panelGap, 1)
	return svg.Bytes()
}

// speed returns the admitted units a second, as the mean of three adjacent samples.
func speed(samples []fleet.Sample) []point {
	points := make([]point, len(samples))
	for i, s := range samples {
		from, to := max(i-1, 0), min(i+2, len(samples))
		units := int64(0)
		for _, near := range samples[from:to] {
			units += near.Admitted
		}
		points[i].x = (s.At + fleet.SampleEvery/2).Seconds()
		points[i].y = float64(units) / (float64(to-from) * fleet.SampleEvery.Seconds())
	}
	return points
}

// level returns the level of a bucket that leaks at the rate and takes the admitted units, at the end of each sample.
// The order within a sample is unknown, so the order with the lowest level is assumed. So a level above the burst was
// really beyond the limit, and the exceedance is at least as large.
func level(samples []fleet.Sample, rate float64) []point {
	points := make([]point, len(samples))
	units := 0.0
	for i, s := range samples {
		units = max(units+float64(s.Admitted)-rate*fleet.SampleEvery.Seconds(), 0)
		points[i] = point{(s.At + fleet.SampleEvery).Seconds(), units}
	}
	return points
}

// styles has the line of each kind, the same in every picture. The colours have middle lightness and
// are legible on white and on black. exact is dashed, because it often lies under the others.
var styles = map[fleet.Kind]benchkit.Stroke{
	fleet.Auto:         {Colour: "#2f81f7"},
	fleet.Strict:       {Colour: "#d9722e"},
	fleet.Deferred:     {Colour: "#2da160"},
	fleet.CountAndPush: {Colour: "#c2489b"},
	fleet.RedisExact:   {Colour: "#a08428", Dash: "2 3"},
	fleet.CentralExact: {Colour: "#8b8f96", Dash: "5 3"},

	fleet.Leases:          {Colour: "#2f81f7"},
	fleet.ShortLeases:     {Colour: "#2da160"},
	fleet.DropRatio:       {Colour: "#c2489b"},
	fleet.DropRatioCapped: {Colour: "#d9722e"},
	fleet.RateLeases:      {Colour: "#a08428", Dash: "2 3"},
}
