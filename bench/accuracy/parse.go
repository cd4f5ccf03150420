package accuracy

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// ReadAll parses every scenario file (*.txt) of a directory, by name.
func ReadAll(dir fs.FS) ([]*Family, error) { return readAll(dir, Parse) }

// Parse reads a scenario file. Every line is a word with its values. "#" starts
// a comment. README.md lists the words. The error has a line "file:line:
// message" for every mistake.
func Parse(file, text string) (*Family, error) {
	f := &Family{
		Name:       strings.TrimSuffix(path.Base(file), path.Ext(file)),
		Overshoots: []float64{0.05},
		Base:       fleet.Scenario{Seed: 1, Latency: 500 * time.Microsecond},
	}
	r := reader{file: file}
	read(&r, text, words, f, func(word string) {
		if word == "must" {
			f.Musts[len(f.Musts)-1].Line = r.lines
		}
	})
	r.require("processes", "limit", "load", "span", "kinds")
	if len(r.bad) == 0 {
		f.agree(r.said, r.complain)
	}
	return f, errors.Join(r.bad...)
}

// agree checks that the lines agree with each other.
func (f *Family) agree(said map[string]int, complain func(int, error)) {
	if f.Base.Steady >= f.Base.Span {
		complain(said["steady"], fmt.Errorf("steady: nothing is left of a span of %v", f.Base.Span))
	}
	if load := f.Base.Load; load.Zipf > 0 && (load.Shape == fleet.Rush || load.InTurn) {
		complain(said["skew"], errors.New("skew: the processes have equal parts of this load"))
	}
	if f.Plot != 0 && !slices.Contains(f.Factors, f.Plot) {
		complain(said["plot"], fmt.Errorf("plot: the load has no factor %s", number(f.Plot)))
	}
	switch f.Base.Limit.Algorithm {
	case hybridlimit.AlgTokenBucket, hybridlimit.AlgLeakyBucket:
	default:
		if f.Plot != 0 {
			complain(said["plot"], errors.New("plot: what is drawn is the level of a bucket"))
		}
		if said["change"] > 0 {
			complain(said["change"], errors.New("change: only a bucket may change"))
		}
	}
	if said["change"] > 0 && slices.Contains(f.Kinds, fleet.CountAndPush) {
		complain(said["change"], errors.New("change: count-and-push has no limit of a fleet"))
	}
	var last time.Duration
	for _, c := range f.Base.Changes {
		if c.At <= last || c.At >= f.Base.Span || c.Limit.Algorithm != f.Base.Limit.Algorithm {
			complain(said["change"], fmt.Errorf("change: %v after %v must be in order, within the span, and of the limit's algorithm", c.Limit, c.At))
		}
		last = c.At
	}
	if f.Plot != 0 && f.Base.Load.Keys > 1 {
		complain(said["plot"], errors.New("plot: one line cannot show many keys"))
	}
	if said["cold"] > 0 && said["warm"] > 0 {
		complain(said["warm"], errors.New("warm: the start is cold"))
	}
	if said["overshoot"] > 0 && !slices.Contains(f.Kinds, fleet.Auto) {
		complain(said["overshoot"], errors.New("overshoot: auto is the only kind that has one"))
	}
	if f.Title == "" {
		f.Title = f.Name
	}
	for _, m := range f.Musts {
		named := m.Kinds
		if _, ok := kinds[m.Of]; ok {
			named = append(slices.Clone(named), m.Of)
			if m.Of == "auto" && len(f.Overshoots) > 1 {
				complain(m.Line, errors.New("must: several rows are auto's"))
			}
		}
		if m.At != 0 && !slices.Contains(f.Factors, m.At) {
			complain(m.Line, fmt.Errorf("must: the load has no factor %s", number(m.At)))
		}
		for _, kind := range named {
			if !slices.Contains(f.Kinds, kinds[kind]) {
				complain(m.Line, fmt.Errorf("must: %s is not one of the kinds", kind))
			}
		}
	}
}
