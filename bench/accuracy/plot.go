package accuracy

import (
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

// SVG draws the scenario in two panels. The upper panel shows the units that
// each limiter admits a second, and the rate. The lower panel shows the level
// of one bucket that leaks at the rate and takes all admitted units. A level
// above the burst is beyond the limit.
func (p Plot) SVG() []byte {
	s := p.runs[0].Case.Run
	rate := float64(s.Limit.Rate) / s.Limit.Period.Seconds()
	burst := p.runs[0].Case.burst()

	above := panel{
		title: "admitted, units a second (mean of 0.3 s)",
		limit: rate, cut: 2.5 * rate, span: s.Span,
	}
	below := panel{
		title: "level of one bucket that takes all admitted units",
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

// speed returns the admitted units a second, as the mean of three adjacent
// samples.
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

// level returns the level of a bucket that leaks at the rate and takes the
// admitted units, at the end of each sample. The order within a sample is
// unknown, so the order with the lowest level is assumed. So a level above the
// burst was really beyond the limit, and the exceedance is at least as large.
func level(samples []fleet.Sample, rate float64) []point {
	points := make([]point, len(samples))
	units := 0.0
	for i, s := range samples {
		units = max(units+float64(s.Admitted)-rate*fleet.SampleEvery.Seconds(), 0)
		points[i] = point{(s.At + fleet.SampleEvery).Seconds(), units}
	}
	return points
}

// styleOf returns the style of a kind's line, the same in every picture. The
// colours have middle lightness and are legible on white and on black. exact is
// dashed, because it often lies under the others.
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
