package accuracy

import (
	"cmp"
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

// CallFamily is one scenario file of calls in flight: the settings that its runs
// share, and the settings that vary.
type CallFamily struct {
	Name  string             // the file name without its extension
	Title string             // for the page
	Base  fleet.CallScenario // all but Kind and Load
	Loads []float64          // one scenario each
	Kinds []fleet.Kind       // one row each
	Musts []Must             // the bounds of the rows
}

// CallCase is one run, which becomes a row of the table.
type CallCase struct {
	Family   *CallFamily
	Scenario string // family and load
	Run      fleet.CallScenario
}

// callKinds has the words for the limiters.
var callKinds = map[string]fleet.Kind{
	string(fleet.Engine): fleet.Engine, string(fleet.Limiter): fleet.Limiter,
	string(fleet.SortedSet): fleet.SortedSet, string(fleet.CentralExact): fleet.CentralExact,
}

// callWords has the words that a line can start with, as words has.
var callWords = map[string]func(*CallFamily, *args) error{
	"title":     func(f *CallFamily, a *args) error { f.Title = strings.Join(*a, " "); *a = nil; return nil },
	"processes": func(f *CallFamily, a *args) (err error) { f.Base.Processes, err = a.count(); return },
	"limit":     readConcurrent,
	"keys":      func(f *CallFamily, a *args) (err error) { f.Base.Keys, err = a.count(); return },
	"calls":     func(f *CallFamily, a *args) (err error) { f.Base.Lasts, err = a.duration(); return },
	"load":      readLoads,
	"wait":      func(f *CallFamily, a *args) (err error) { f.Base.Wait, err = a.duration(); return },
	"span":      func(f *CallFamily, a *args) (err error) { f.Base.Span, err = a.duration(); return },
	"steady":    func(f *CallFamily, a *args) (err error) { f.Base.Steady, err = a.duration(); return },
	"rtt":       func(f *CallFamily, a *args) (err error) { f.Base.Latency, err = a.duration(); return },
	"seed": func(f *CallFamily, a *args) error {
		n, err := a.count()
		f.Base.Seed = uint64(n)
		return err
	},
	"kinds": func(f *CallFamily, a *args) (err error) { f.Kinds, err = kindsOf(a, callKinds); return },
	"must": func(f *CallFamily, a *args) error {
		m, err := a.must(vocabulary{kinds: wordsOf(callKinds), figures: wordsOf(callMetrics)})
		if err == nil {
			f.Musts = append(f.Musts, m)
		}
		return err
	},
}

// readConcurrent reads "1000 concurrent", as hybridlimit.ParseLimit does.
func readConcurrent(f *CallFamily, a *args) error {
	if len(*a) == 0 {
		return errMissing
	}
	text := strings.Join(*a, " ")
	*a = nil
	limit, err := hybridlimit.ParseLimit(text)
	if err == nil && limit.Algorithm != hybridlimit.AlgConcurrent {
		err = fmt.Errorf("%q is no limit of calls in flight", text)
	}
	f.Base.Limit = limit.BurstSize()
	return err
}

// readLoads reads "0.5 0.95 1.5".
func readLoads(f *CallFamily, a *args) (err error) {
	if f.Loads, err = a.numbers(); err == nil && slices.Contains(f.Loads, 0) {
		err = errors.New("0 is no load")
	}
	return err
}

// ReadCalls parses every scenario file of calls in flight of a directory. Those of
// one fleet stand together, by the length of their calls. Those with the limiter are
// last.
func ReadCalls(dir fs.FS) ([]*CallFamily, error) {
	all, err := readAll(dir, ParseCalls)
	slices.SortStableFunc(all, func(a, b *CallFamily) int {
		return cmp.Or(
			cmp.Compare(a.limiters(), b.limiters()), cmp.Compare(a.Base.Keys, b.Base.Keys), cmp.Compare(b.Base.Limit, a.Base.Limit),
			cmp.Compare(a.Base.Processes, b.Base.Processes), cmp.Compare(a.Base.Lasts, b.Base.Lasts),
		)
	})
	return all, err
}

// limiters returns the number of rows of the limiter itself in each scenario.
func (f *CallFamily) limiters() int {
	if slices.Contains(f.Kinds, fleet.Limiter) {
		return 1
	}
	return 0
}

// ParseCalls reads a scenario file of calls in flight, as Parse reads those of rates.
func ParseCalls(file, text string) (*CallFamily, error) {
	f := &CallFamily{
		Name: strings.TrimSuffix(path.Base(file), path.Ext(file)),
		Base: fleet.CallScenario{Seed: 1, Keys: 1, Latency: 500 * time.Microsecond},
	}
	r := reader{file: file}
	read(&r, text, callWords, f, func(word string) {
		if word == "must" {
			f.Musts[len(f.Musts)-1].Line = r.lines
		}
	})
	r.require("processes", "limit", "calls", "load", "span", "kinds")
	if len(r.bad) == 0 {
		f.agree(&r)
	}
	return f, errors.Join(r.bad...)
}

// agree checks that the lines agree with each other.
func (f *CallFamily) agree(r *reader) {
	if f.Base.Steady >= f.Base.Span {
		r.complain(r.said["steady"], fmt.Errorf("steady: nothing is left of a span of %v", f.Base.Span))
	}
	if !slices.Contains(f.Kinds, fleet.CentralExact) {
		r.complain(r.said["kinds"], errors.New("kinds: the share is of central, which is missing"))
	}
	if f.Title == "" {
		f.Title = f.Name
	}
	for _, m := range f.Musts {
		if m.At != 0 && !slices.Contains(f.Loads, m.At) {
			r.complain(m.Line, fmt.Errorf("must: there is no load %s", number(m.At)))
		}
		named := slices.Clone(m.Kinds)
		if m.Of != "" {
			named = append(named, m.Of)
		}
		for _, kind := range named {
			if !slices.Contains(f.Kinds, callKinds[kind]) {
				r.complain(m.Line, fmt.Errorf("must: %s is not one of the kinds", kind))
			}
		}
	}
}

// Cases returns the runs of the family, scenario by scenario.
func (f *CallFamily) Cases() []CallCase {
	var all []CallCase
	for _, load := range f.Loads {
		for _, kind := range f.Kinds {
			c := CallCase{Family: f, Scenario: f.Name + " ×" + number(load), Run: f.Base}
			c.Run.Kind, c.Run.Load = kind, load
			all = append(all, c)
		}
	}
	return all
}

// Setting describes the family's scenarios in one line.
func (f *CallFamily) Setting() string {
	b := f.Base
	s := fmt.Sprintf("%d processes, %d calls at once", b.Processes, b.Limit)
	if b.Keys > 1 {
		s += fmt.Sprintf(" of each of %d keys", b.Keys)
	}
	return s + fmt.Sprintf(", calls of %v that wait at most %v, %v (steady after %v), round trip %v", b.Lasts, b.Wait, b.Span, b.Steady, b.Latency)
}
