package main

import (
	"fmt"
	"strings"
	"time"
)

// The size of the picture. A row is a quarter of the limit, so the limit is the
// top edge of the fourth row, and what is above twice the limit is cut off.
const (
	maxColumns  = 60
	chartRows   = 8
	rowsToLimit = 4
)

// timeline is a picture of what was admitted on the hot key, over time:
//
//   - bars in eighths of a row, ▲ where they are cut off
//   - a line for Redis, with a gap where it was dead
//   - how many processes decided alone in that column
func timeline(r record) string {
	columns, width := scale(r.config.Seconds)
	admitted, alone := make([]int64, columns), make([]int, columns)
	for _, of := range r.cells {
		decided := make([]bool, columns)
		for _, c := range of {
			at := min(max(c.Ended, 0)/width, columns-1)
			admitted[at] += c.Shared + c.Alone
			decided[at] = decided[at] || c.AloneCalls > 0
		}
		for at, yes := range decided {
			if yes {
				alone[at]++
			}
		}
	}

	var b strings.Builder
	eighths := make([]int, columns)
	for at, n := range admitted {
		perSecond := float64(n) / (float64(width) * cellTime.Seconds())
		eighths[at] = int(perSecond/float64(r.config.Rate)*rowsToLimit*8 + 0.5)
	}
	for row := chartRows; row >= 1; row-- {
		label, mark := "", ""
		switch row {
		case chartRows:
			label = number(2 * r.config.Rate)
		case rowsToLimit:
			label, mark = number(r.config.Rate), " ◄ limit"
		}
		line(&b, "%9s ┤%s%s", label, bars(eighths, row), mark)
	}
	line(&b, "%9s └%s", "0", axis(columns, width))
	line(&b, "%9s  %s", "", seconds(columns, width))
	if r.outage {
		line(&b, "%9s  %s", "Redis", life(columns, cellOf(r.killed)/width, cellOf(r.restarted)/width))
	}
	line(&b, "%9s  %s processes", "alone", counts(alone))
	return b.String()
}

// line writes a line without blanks at its end.
func line(b *strings.Builder, format string, args ...any) {
	b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	b.WriteByte('\n')
}

// cellsPerSecond is whole, so that columns and seconds begin together.
const cellsPerSecond = int(time.Second / cellTime)

// scale is how many columns a run has, and how many cells go into one: as few
// as maxColumns allows and as part or multiple of a second.
func scale(seconds int) (columns, width int) {
	for _, width = range []int{10, 20, 25, 50, 100, 200, 500, 1000} {
		if seconds*cellsPerSecond <= maxColumns*width {
			break
		}
	}
	return (seconds*cellsPerSecond + width - 1) / width, width
}

// bars is one row of all bars; row 1 is the lowest.
func bars(eighths []int, row int) string {
	var b strings.Builder
	for _, e := range eighths {
		switch fill := e - (row-1)*8; {
		case row == chartRows && fill > 8:
			b.WriteRune('▲')
		case fill <= 0:
			b.WriteRune(' ')
		default:
			b.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(fill, 8)-1])
		}
	}
	return b.String()
}

// ticks are the columns at which whole seconds begin, far enough apart for
// their labels.
func ticks(columns, width int) (at, second []int) {
	step := 1
	for _, step = range []int{1, 2, 5, 10, 20} {
		if step*cellsPerSecond/width >= 5 {
			break
		}
	}
	for s := 0; s*cellsPerSecond/width < columns; s += step {
		at, second = append(at, s*cellsPerSecond/width), append(second, s)
	}
	return at, second
}

func axis(columns, width int) string {
	line := []rune(strings.Repeat("─", columns))
	at, _ := ticks(columns, width)
	for _, c := range at {
		line[c] = '┬'
	}
	return string(line)
}

func seconds(columns, width int) string {
	line := []byte(strings.Repeat(" ", columns+4))
	at, second := ticks(columns, width)
	for i, c := range at {
		copy(line[c:], fmt.Sprintf("%ds", second[i]))
	}
	return string(line)
}

// life is Redis's line. Dead columns are those in which it was dead at all.
func life(columns, killed, restarted int) string {
	line := []rune(strings.Repeat("━", columns))
	killed, restarted = min(killed, columns-1), min(restarted, columns-1)
	for c := killed; c <= restarted; c++ {
		line[c] = ' '
	}
	line[killed], line[restarted] = '╳', '╺'
	if gap := restarted - killed - 1; gap >= len("dead") {
		copy(line[killed+1+(gap-len("dead"))/2:], []rune("dead"))
	}
	return string(line)
}

func counts(ns []int) string {
	var b strings.Builder
	for _, n := range ns {
		switch {
		case n == 0:
			b.WriteRune('·')
		case n < 10:
			fmt.Fprint(&b, n)
		default:
			b.WriteRune('+')
		}
	}
	return b.String()
}
