package accuracy

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/fleet"
)

// Plot is a picture of one scenario.
type Plot struct {
	Title string
	File  string // its name
	runs  []Run
}

// Plots are the pictures that the families ask for.
func (r *Result) Plots() []Plot {
	var all []Plot
	for _, f := range r.Families {
		if f.Plot == 0 {
			continue
		}
		p := Plot{Title: fmt.Sprintf("%s, load %s", f.Title, number(f.Plot)), File: f.Name + ".svg"}
		for _, run := range r.runs {
			if run.Case.Family == f && run.Case.Scenario == f.scenario(f.Plot) {
				p.runs = append(p.runs, run)
			}
		}
		if len(p.runs) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// SVG draws the scenario in two panels. Above is what each limiter admits a
// second, against the rate. Below is the level of one bucket that leaks at the
// rate and takes all that was admitted: what rises above the burst is beyond
// the limit, what stays below it is left unused.
func (p Plot) SVG() []byte {
	s := p.runs[0].Case.Run
	rate := float64(s.Limit.Rate) / s.Limit.Period.Seconds()
	burst := p.runs[0].Case.burst()

	above := panel{
		title: "admitted, units a second (mean of 0.3 s)",
		limit: rate, cut: 2.5 * rate, span: s.Span,
	}
	below := panel{
		title: "level of one bucket that takes all that was admitted, units",
		limit: burst, cut: 3 * burst, span: s.Span,
	}
	for _, run := range p.runs {
		line := line{name: run.Case.Kind, style: styleOf(run.Case.Run.Kind)}
		line.points = speed(run.Report.Timeline)
		above.lines = append(above.lines, line)
		line.points = level(run.Report.Timeline, rate)
		below.lines = append(below.lines, line)
	}
	return drawing{
		title:     p.Title,
		about:     p.runs[0].Case.Family.Setting(),
		limitName: fmt.Sprintf("the limit (%s/s; burst %s)", short(rate), short(burst)),
		panels:    []panel{above, below},
	}.svg()
}

// speed is what was admitted a second, as the mean of three samples about each.
func speed(samples []fleet.Sample) []point {
	points := make([]point, len(samples))
	for i, s := range samples {
		from, to := max(i-1, 0), min(i+2, len(samples))
		units := int64(0)
		for _, near := range samples[from:to] {
			units += near.Admitted
		}
		points[i] = point{(s.At + fleet.SampleEvery/2).Seconds(), float64(units) / (float64(to-from) * fleet.SampleEvery.Seconds())}
	}
	return points
}

// level is that of a bucket that leaks at the rate and takes what was
// admitted, at the end of each sample. Within a sample the order is unknown,
// and taken for the one that makes the level least: what is drawn above the
// burst was beyond the limit, and the exceedance is no smaller.
func level(samples []fleet.Sample, rate float64) []point {
	points := make([]point, len(samples))
	units := 0.0
	for i, s := range samples {
		units = max(units+float64(s.Admitted)-rate*fleet.SampleEvery.Seconds(), 0)
		points[i] = point{(s.At + fleet.SampleEvery).Seconds(), units}
	}
	return points
}

// styleOf is how a kind's line is drawn, the same in every picture. The
// colours are of middle lightness, legible on white and on black; exact, which
// often lies under the others, is broken.
func styleOf(k fleet.Kind) benchkit.Stroke {
	switch k {
	case fleet.Auto:
		return benchkit.Stroke{Colour: "#2f81f7"}
	case fleet.Strict:
		return benchkit.Stroke{Colour: "#d9722e"}
	case fleet.Deferred:
		return benchkit.Stroke{Colour: "#2da160"}
	case fleet.CountAndPush:
		return benchkit.Stroke{Colour: "#c2489b"}
	case fleet.RedisExact:
		return benchkit.Stroke{Colour: "#a08428", Dash: "2 3"}
	default:
		return benchkit.Stroke{Colour: "#8b8f96", Dash: "5 3"}
	}
}
