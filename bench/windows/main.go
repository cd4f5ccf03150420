// Windows measures the error of the fixed window, and of the sliding window of two counters, compared with the exact
// log. It generates the traffic of many sources. It also measures the worst attack on each algorithm.
//
//	cd bench && go run ./windows          prints the tables
//	cd bench && go run ./windows -write   writes them, and the figure, to docs/windows.md
//
// The windows are those of internal/algo, which has the arithmetic that Redis runs in Lua. The log is the list of units
// admitted in the last period. Time is simulated and the seed is fixed, so the output is always the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// The limit of every source.
const (
	rate   int64 = 100
	minute       = int64(time.Minute / time.Microsecond)
)

// kinds are the two windows.
var kinds = []algo.Window{
	algo.WindowOf(hybridlimit.SlidingWindow(rate, time.Minute)),
	algo.WindowOf(hybridlimit.FixedWindow(rate, time.Minute)),
}

func main() {
	seed := flag.Uint64("seed", 1, "seed of the traffic")
	write := flag.Bool("write", false, "write the tables to docs/windows.md, and the figure beside it")
	docs := flag.String("docs", "../docs", "the docs directory")
	flag.Parse()
	benchkit.Main("windows", func(context.Context) error {
		text := page(measureAll(*seed))
		fmt.Print(text)
		if !*write {
			return nil
		}
		return update(*docs, text)
	})
}

// measureAll returns a row for each kind of traffic.
func measureAll(seed uint64) (rows []row) {
	for i, t := range traffics {
		rows = append(rows, measure(t, seed<<8+uint64(i)))
	}
	return rows
}

// page returns the whole output: the tables of all traffic, then the attacks.
func page(rows []row) string { return tables(rows) + "\n" + attacks() }

// The command owns the text between these lines of the page.
const (
	begin = "<!-- Printed by: cd bench && go run ./windows -write -->\n"
	end   = "<!-- End of what was printed. -->\n"
)

const figureFile = "windows.svg"

// splice replaces the text between these lines.
func splice(old, text string) (string, error) {
	return benchkit.Between(old, begin, end, "\n"+text+"\n")
}

func update(docs, text string) error {
	file := filepath.Join(docs, "windows.md")
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if text, err = splice(string(old), text); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(file, []byte(text), 0o644), os.WriteFile(filepath.Join(docs, figureFile), figure(), 0o644))
}
