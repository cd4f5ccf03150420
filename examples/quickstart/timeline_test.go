package main

import (
	"strings"
	"testing"
	"time"
)

func TestTimeline(t *testing.T) {
	r := record{
		config: config{Processes: 2, Rate: 1000, Burst: 1000, Seconds: 15}, cells: make([][]cell, 2),
		outage: true, killed: 6 * time.Second, restarted: 9 * time.Second,
	}
	for at := range 1500 {
		first, second := cell{Began: at, Ended: at}, cell{Began: at, Ended: at}
		switch {
		case at == 0:
			first.Shared = 1000
		case at < 600:
			first.Shared, second.Shared = 6, 4
		case at < 910:
			first.Alone, second.Alone, first.AloneCalls, second.AloneCalls = 5, 4, 5, 4
		case at < 940:
			first.Shared, second.AloneCalls = 3, 1
		default:
			first.Shared, second.Shared = int64(at-940)/28, 0
		}
		r.cells[0], r.cells[1] = append(r.cells[0], first), append(r.cells[1], second)
	}
	const want = `
    2,000 ┤▲                                                         ▂▅
          ┤█                                                      ▂▄▇██
          ┤█                                                   ▁▄▇█████
          ┤█                                                 ▃▆████████
    1,000 ┤████████████████████████▅▅▅▅▅▅▅▅▅▅▅▅           ▃▅███████████ ◄ limit
          ┤████████████████████████████████████▁       ▂▅██████████████
          ┤█████████████████████████████████████    ▂▅▇████████████████
          ┤█████████████████████████████████████▆▁▄▇███████████████████
        0 └┬───────┬───────┬───────┬───────┬───────┬───────┬───────┬───
           0s      2s      4s      6s      8s      10s     12s     14s
    Redis  ━━━━━━━━━━━━━━━━━━━━━━━━╳   dead    ╺━━━━━━━━━━━━━━━━━━━━━━━
    alone  ························22222222222221······················ processes
`
	if got := "\n" + timeline(r); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

func TestTimelineOfAnyLength(t *testing.T) {
	for seconds := minSeconds; seconds <= maxSeconds; seconds++ {
		c := config{Processes: 12, Rate: 7, Burst: 7, Seconds: seconds}
		r := record{config: c, cells: make([][]cell, 12)}
		r.killed, r.restarted, r.outage = c.outage()
		for p := range r.cells { // one call ends after the load
			r.cells[p] = []cell{{Began: 3, Ended: 4, Alone: 1, AloneCalls: 1}, {Began: 100*seconds - 1, Ended: 100*seconds + 1, Shared: 5}}
		}
		picture := timeline(r)
		columns, width := scale(seconds)
		if columns > maxColumns || columns*width < seconds*cellsPerSecond {
			t.Errorf("%d s: %d columns of %d cells", seconds, columns, width)
		}
		for line := range strings.Lines(picture) {
			if n := len([]rune(line)); n > 90 {
				t.Errorf("%d s: a line of %d: %s", seconds, n, line)
			}
		}
		if !strings.Contains(picture, "  +") || !strings.Contains(picture, "▲") || !strings.Contains(picture, "dead") {
			t.Errorf("%d s: something is missing:\n%s", seconds, picture)
		}
	}
}
