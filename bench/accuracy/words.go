package accuracy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// words has the words that a line can start with. Each function reads its
// values from the rest of the line. A value that it leaves is an error.
var words = map[string]func(*Family, *args) error{
	"title":     func(f *Family, a *args) error { f.Title = strings.Join(*a, " "); *a = nil; return nil },
	"processes": func(f *Family, a *args) (err error) { f.Base.Processes, err = a.count(); return },
	"limit":     readLimit,
	"change":    readChange,
	"load":      readLoad,
	"skew":      func(f *Family, a *args) (err error) { f.Base.Load.Zipf, err = a.number(); return },
	"classes":   readClasses,
	"keys":      readKeys,
	"cost":      readCost,
	"overshoot": func(f *Family, a *args) (err error) { f.Overshoots, err = a.numbers(); return },
	"interval":  func(f *Family, a *args) (err error) { f.Base.Interval, err = a.duration(); return },
	"span":      func(f *Family, a *args) (err error) { f.Base.Span, err = a.duration(); return },
	"steady":    func(f *Family, a *args) (err error) { f.Base.Steady, err = a.duration(); return },
	"warm":      func(f *Family, a *args) (err error) { f.Base.Warm, err = a.duration(); return },
	"cold":      func(f *Family, _ *args) error { f.Base.Cold = true; return nil },
	"rtt":       func(f *Family, a *args) (err error) { f.Base.Latency, err = a.duration(); return },
	"seed": func(f *Family, a *args) error {
		n, err := a.count()
		f.Base.Seed = uint64(n)
		return err
	},
	"kinds": readKinds,
	"plot":  func(f *Family, a *args) (err error) { f.Plot, err = a.number(); return },
	"must":  readMust,
}

// readLimit reads a limit as hybridlimit.ParseLimit does, such as "1000/s burst
// 500" or "1000/min sliding window", except limits that count nothing.
func readLimit(f *Family, a *args) (err error) {
	if f.Base.Limit, err = a.limit(); err != nil {
		return err
	}
	if alg := f.Base.Limit.Algorithm; alg == hybridlimit.AlgUnlimited || alg == hybridlimit.AlgBlocked {
		return fmt.Errorf("%q counts nothing", alg)
	}
	return nil
}

// limit takes the other words as a limit. It must not be one of calls in flight.
func (a *args) limit() (hybridlimit.Limit, error) {
	if len(*a) == 0 {
		return hybridlimit.Limit{}, errMissing
	}
	text := strings.Join(*a, " ")
	*a = nil
	limit, err := hybridlimit.ParseLimit(text)
	if err == nil && limit.Algorithm == hybridlimit.AlgConcurrent {
		err = fmt.Errorf("%q is no limit of a rate", text)
	}
	return limit, err
}

// readClasses reads "floor 0.2 critical 0.06": the floor of the calls that are not critical, and the part of the calls that are.
func readClasses(f *Family, a *args) error {
	return a.pairs(map[string]func() error{
		"floor":    func() (err error) { f.Base.Floor, err = a.number(); return },
		"critical": func() (err error) { f.Base.Critical, err = a.number(); return },
	})
}

// readChange reads "5s 2000/s burst 2000".
func readChange(f *Family, a *args) error {
	at, err := a.duration()
	if err != nil {
		return err
	}
	limit, err := a.limit()
	f.Base.Changes = append(f.Base.Changes, fleet.Change{At: at, Limit: limit})
	return err
}

var shapes = map[string]fleet.Shape{
	string(fleet.Steady): fleet.Steady, string(fleet.OnOff): fleet.OnOff,
	string(fleet.Ramp): fleet.Ramp, string(fleet.Burst): fleet.Burst,
	string(fleet.Rush): fleet.Rush, string(fleet.Groups): fleet.Groups,
}

// readLoad reads "steady 0.5 1.5", "on/off 3 on 250ms off 750ms", "rush 1 on 3ms
// off 100ms" or "groups 1 on 5ms off 2s size 5 20 in-turn".
func readLoad(f *Family, a *args) error {
	word, err := a.next()
	if err != nil {
		return err
	}
	load := &f.Base.Load
	shape, ok := shapes[word]
	if !ok {
		return fmt.Errorf("unknown shape %q (there are: %s)", word, oneOf(shapes))
	}
	load.Shape = shape
	if f.Factors, err = a.numbers(); err != nil {
		return err
	}
	if slices.Contains(f.Factors, 0) {
		return errors.New("a factor of 0 is no load")
	}
	if shape != fleet.OnOff && shape != fleet.Rush && shape != fleet.Groups {
		return nil
	}
	names := map[string]func() error{
		"on":  func() (err error) { load.On, err = a.duration(); return },
		"off": func() (err error) { load.Off, err = a.duration(); return },
	}
	if shape == fleet.Groups {
		names["size"] = func() (err error) { load.MinSize, load.MaxSize, err = a.fromTo(); return }
		names["in-turn"] = func() error { load.InTurn = true; return nil }
	}
	err = a.pairs(names)
	switch {
	case err != nil:
		return err
	case load.On == 0 || load.Off == 0:
		return fmt.Errorf("%s needs both: on 250ms off 750ms", shape)
	case shape == fleet.Groups && load.MaxSize == 0:
		return errors.New("groups needs a size: size 5 20")
	}
	return nil
}

// readCost reads "5", which is 1 to 5, or "1000 8000".
func readCost(f *Family, a *args) error {
	load := &f.Base.Load
	if len(*a) < 2 {
		n, err := a.count()
		load.MaxCost = int64(n)
		return err
	}
	least, most, err := a.fromTo()
	load.MinCost, load.MaxCost = int64(least), int64(most)
	return err
}

// readKeys reads "2000 zipf 1.0 low 0.1 high 3". Only the count is required.
func readKeys(f *Family, a *args) (err error) {
	load := &f.Base.Load
	if load.Keys, err = a.count(); err != nil {
		return err
	}
	err = a.pairs(map[string]func() error{
		"zipf": func() (err error) { load.KeyZipf, err = a.number(); return },
		"low":  func() (err error) { load.KeyLow, err = a.number(); return },
		"high": func() (err error) { load.KeyHigh, err = a.number(); return },
	})
	if err == nil && load.KeyHigh < load.KeyLow {
		err = errors.New("high is below low")
	}
	return err
}

func readKinds(f *Family, a *args) (err error) {
	f.Kinds, err = kindsOf(a, kinds)
	return err
}

func readMust(f *Family, a *args) error {
	m, err := a.must(vocabulary{wordsOf(kinds), wordsOf(metrics), wordsOf(scales)})
	if err == nil {
		f.Musts = append(f.Musts, m)
	}
	return err
}
