package accuracy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// reader reads the lines of a scenario file.
type reader struct {
	file  string
	lines int            // read so far
	said  map[string]int // the last line of each word
	bad   []error        // "file:line: message"
}

func (r *reader) complain(line int, format string, args ...any) {
	r.bad = append(r.bad, fmt.Errorf("%s:%d: %w", r.file, line, fmt.Errorf(format, args...)))
}

// rule is a disagreement of the line of a word with others.
type rule struct {
	broken       bool
	word, reason string
}

// check complains about the rules that are broken.
func (r *reader) check(rules []rule) {
	for _, rule := range rules {
		if rule.broken {
			r.complain(r.said[rule.word], "%s: %s", rule.word, rule.reason)
		}
	}
}

// Parse reads a scenario file. Every line is a word with its values. "#" starts a comment.
// README.md lists the words. The error has a line "file:line: message" for every mistake.
func (l *Lab) Parse(file, text string) (*Family, error) {
	f := l.family
	f.Lab, f.Name = l, strings.TrimSuffix(path.Base(file), path.Ext(file))
	f.Overshoots = slices.Clone(f.Overshoots)
	f.Seed, f.Latency = 1, 500*time.Microsecond
	r := reader{file: file, said: map[string]int{}}
	words := maps.Clone(commonWords)
	maps.Copy(words, l.words)
	var setting []string
	for line := range strings.Lines(text) {
		r.lines++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		name, rest := fields[0], args(fields[1:])
		take, ok := words[name]
		first := r.said[name]
		switch {
		case !ok:
			r.complain(r.lines, "unknown word %q (there are: %s)", name, oneOf(words))
			continue
		case first > 0 && name != "must" && name != "change":
			r.complain(r.lines, "%s: said in line %d", name, first)
			continue
		}
		r.said[name] = r.lines
		if !slices.Contains([]string{"title", "kinds", "must", "plot"}, name) {
			setting = append(setting, strings.Join(fields, " "))
		}
		musts := len(f.Musts)
		err := take(&f, &rest)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%q is one too many", rest[0])
		}
		if err != nil {
			r.complain(r.lines, "%s: %w", name, err)
		} else if len(f.Musts) > musts {
			f.Musts[musts].Line = r.lines
		}
	}
	for _, name := range l.required {
		if r.said[name] == 0 {
			r.complain(r.lines, "%s is missing", name)
		}
	}
	f.Setting = strings.Join(setting, ", ")
	if len(r.bad) == 0 {
		f.agree(&r)
	}
	return &f, errors.Join(r.bad...)
}

// agree checks that the lines agree with each other.
func (f *Family) agree(r *reader) {
	f.Title = cmp.Or(f.Title, f.Name)
	if f.Steady >= f.Span {
		r.complain(r.said["steady"], "steady: nothing is left of a span of %v", f.Span)
	}
	r.check([]rule{{f.Plot != 0 && !slices.Contains(f.Factors, f.Plot), "plot", "the load has no factor " + number(f.Plot)}})
	f.Lab.agree(f, r)
	for _, m := range f.Musts {
		named := m.Kinds
		if slices.Contains(f.Lab.kinds, m.Of) {
			named = append(slices.Clone(named), m.Of)
			if m.Of == "auto" && len(f.Overshoots) > 1 {
				r.complain(m.Line, "must: several rows are auto's")
			}
		}
		if m.At != 0 && !slices.Contains(f.Factors, m.At) {
			r.complain(m.Line, "must: the load has no factor %s", number(m.At))
		}
		for _, kind := range named {
			if !slices.Contains(f.Kinds, kind) {
				r.complain(m.Line, "must: %s is not one of the kinds", kind)
			}
		}
	}
}

func (f *Family) agreeCalls(r *reader) {
	if !slices.Contains(f.Kinds, f.Lab.central) {
		r.complain(r.said["kinds"], "kinds: the share is of central, which is missing")
	}
}

func (f *Family) agreeHot(r *reader) {
	f.agreeCalls(r)
	r.check([]rule{
		{f.Hot.Limit.Algorithm != hybridlimit.AlgTokenBucket, "limit", "the limit of a hot key is a token bucket"},
		{f.Hot.Step > f.Steady, "step", "the figures are of the time after the step"},
		{f.Hot.Dies > 0 && f.Hot.Parts < 2, "dies", "one of several masters dies"},
		{f.Hot.Parts > 1 && slices.ContainsFunc(f.Kinds, func(kind string) bool {
			return kind != string(fleet.Leases) && kind != string(fleet.ShortLeases) && kind != string(fleet.CentralExact)
		}), "parts", "only leases can be split"},
	})
}

func (f *Family) agreeRate(r *reader) {
	load, algorithm := f.Rate.Load, f.Rate.Limit.Algorithm
	bucket := algorithm == hybridlimit.AlgTokenBucket || algorithm == hybridlimit.AlgLeakyBucket
	plot, change := f.Plot != 0, r.said["change"] > 0
	r.check([]rule{
		{load.Zipf > 0 && (load.Shape == fleet.Rush || load.InTurn), "skew", "the processes have equal parts of this load"},
		{plot && !bucket, "plot", "what is drawn is the level of a bucket"},
		{plot && load.Keys > 1, "plot", "one line cannot show many keys"},
		{change && !bucket, "change", "only a bucket may change"},
		{change && slices.Contains(f.Kinds, "count-and-push"), "change", "count-and-push has no limit of a fleet"},
		{r.said["cold"] > 0 && r.said["warm"] > 0, "warm", "the start is cold"},
		{r.said["overshoot"] > 0 && !slices.Contains(f.Kinds, "auto"), "overshoot", "auto is the only kind that has one"},
	})
	var last time.Duration
	for _, c := range f.Rate.Changes {
		if c.At <= last || c.At >= f.Span || c.Limit.Algorithm != algorithm {
			r.complain(r.said["change"], "change: %v after %v must be in order, within the span, and of the limit's algorithm", c.Limit, c.At)
		}
		last = c.At
	}
}

// word reads the values of a line from the rest of it. A value that it leaves is an error.
type word func(*Family, *args) error

// commonWords has the words that a line of each sort of file can start with.
var commonWords = map[string]word{
	"title":     func(f *Family, a *args) error { f.Title = a.rest(); return nil },
	"processes": func(f *Family, a *args) (err error) { f.Processes, err = a.count(); return },
	"span":      func(f *Family, a *args) (err error) { f.Span, err = a.duration(); return },
	"steady":    func(f *Family, a *args) (err error) { f.Steady, err = a.duration(); return },
	"rtt":       func(f *Family, a *args) (err error) { f.Latency, err = a.duration(); return },
	"kinds":     func(f *Family, a *args) (err error) { f.Kinds, err = a.kinds(f.Lab.kinds); return },
	"must":      (*Family).readMust,
	"seed": func(f *Family, a *args) error {
		n, err := a.count()
		f.Seed = uint64(n)
		return err
	},
}

// rateWords has the other words of files of rates.
var rateWords = map[string]word{
	"limit":     func(f *Family, a *args) (err error) { f.Rate.Limit, err = a.limit(false); return },
	"change":    readChange,
	"load":      readLoad,
	"skew":      func(f *Family, a *args) (err error) { f.Rate.Load.Zipf, err = a.number(); return },
	"classes":   readClasses,
	"keys":      readKeys,
	"cost":      readCost,
	"overshoot": func(f *Family, a *args) (err error) { f.Overshoots, err = a.numbers(); return },
	"interval":  func(f *Family, a *args) (err error) { f.Rate.Interval, err = a.duration(); return },
	"warm":      func(f *Family, a *args) (err error) { f.Rate.Warm, err = a.duration(); return },
	"cold":      func(f *Family, _ *args) error { f.Rate.Cold = true; return nil },
	"plot":      func(f *Family, a *args) (err error) { f.Plot, err = a.number(); return },
}

// callWords has the other words of files of calls in flight.
var callWords = map[string]word{
	"limit": func(f *Family, a *args) error {
		limit, err := a.limit(true)
		f.Call.Limit = limit.BurstSize()
		return err
	},
	"keys":  func(f *Family, a *args) (err error) { f.Call.Keys, err = a.count(); return },
	"calls": func(f *Family, a *args) (err error) { f.Call.Lasts, err = a.duration(); return },
	"load":  func(f *Family, a *args) (err error) { f.Factors, err = a.factors(); return },
	"wait":  func(f *Family, a *args) (err error) { f.Call.Wait, err = a.duration(); return },
}

// regionWords has the other words of files of regions.
var regionWords = map[string]word{
	"regions": func(f *Family, a *args) (err error) { f.Region.Regions, err = a.count(); return },
	"limit":   func(f *Family, a *args) (err error) { f.Region.Limit, err = a.limit(false); return },
	"load":    func(f *Family, a *args) (err error) { f.Factors, err = a.factors(); return },
	"hot":     func(f *Family, a *args) (err error) { f.Region.Hot, err = a.number(); return },
	"stay":    func(f *Family, a *args) (err error) { f.Region.Stay, err = a.duration(); return },
	"away":    func(f *Family, a *args) (err error) { f.Region.Away, err = a.duration(); return },
}

// hotWords has the other words of files of hot keys.
var hotWords = map[string]word{
	"limit": func(f *Family, a *args) (err error) { f.Hot.Limit, err = a.limit(false); return },
	"load":  func(f *Family, a *args) (err error) { f.Factors, err = a.factors(); return },
	"step":  func(f *Family, a *args) (err error) { f.Hot.Step, err = a.duration(); return },
	"skew":  func(f *Family, a *args) (err error) { f.Hot.Zipf, err = a.number(); return },
	"redis": func(f *Family, a *args) (err error) { f.Hot.RedisOp, err = a.duration(); return },
	"parts": func(f *Family, a *args) (err error) { f.Hot.Parts, err = a.count(); return },
	"dies":  func(f *Family, a *args) (err error) { f.Hot.Dies, err = a.duration(); return },
	"sized": func(f *Family, _ *args) error { f.Hot.Sized = true; return nil },
	"plot":  func(f *Family, a *args) (err error) { f.Plot, err = a.number(); return },
}

// readClasses reads "floor 0.2 critical 0.06": the floor of the calls that are not critical, and the
// part of the calls that are.
func readClasses(f *Family, a *args) error {
	return a.pairs(map[string]func() error{
		"floor":    func() (err error) { f.Rate.Floor, err = a.number(); return },
		"critical": func() (err error) { f.Rate.Critical, err = a.number(); return },
	})
}

// readChange reads "5s 2000/s burst 2000".
func readChange(f *Family, a *args) error {
	at, err := a.duration()
	if err != nil {
		return err
	}
	limit, err := a.limit(false)
	f.Rate.Changes = append(f.Rate.Changes, fleet.Change{At: at, Limit: limit})
	return err
}

var shapes = map[fleet.Shape]bool{
	fleet.Burst: true, fleet.Groups: true, fleet.OnOff: true, fleet.Ramp: true, fleet.Rush: true, fleet.Steady: true,
}

// readLoad reads "steady 0.5 1.5", "on/off 3 on 250ms off 750ms", "rush 1 on 3ms off 100ms" or
// "groups 1 on 5ms off 2s size 5 20 in-turn".
func readLoad(f *Family, a *args) error {
	name, err := a.next()
	if err != nil {
		return err
	}
	load := &f.Rate.Load
	load.Shape = fleet.Shape(name)
	if !shapes[load.Shape] {
		return fmt.Errorf("unknown shape %q (there are: %s)", name, oneOf(shapes))
	}
	if f.Factors, err = a.factors(); err != nil {
		return err
	}
	names := map[string]func() error{
		"on":  func() (err error) { load.On, err = a.duration(); return },
		"off": func() (err error) { load.Off, err = a.duration(); return },
	}
	switch load.Shape {
	case fleet.Groups:
		names["size"] = func() (err error) { load.MinSize, load.MaxSize, err = a.fromTo(); return }
		names["in-turn"] = func() error { load.InTurn = true; return nil }
	case fleet.OnOff, fleet.Rush:
	default:
		return nil
	}
	err = a.pairs(names)
	switch {
	case err != nil:
		return err
	case load.On == 0 || load.Off == 0:
		return fmt.Errorf("%s needs both: on 250ms off 750ms", load.Shape)
	case load.Shape == fleet.Groups && load.MaxSize == 0:
		return errors.New("groups needs a size: size 5 20")
	}
	return nil
}

// readCost reads "5", which is 1 to 5, or "1000 8000".
func readCost(f *Family, a *args) error {
	load := &f.Rate.Load
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
	load := &f.Rate.Load
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

// readMust reads "strict auto exceedance <= 5% of burst" or "* waits <= 1% at 3". "*" stands for all
// kinds, and "at" gives the load factor.
func (f *Family) readMust(a *args) error {
	m := Must{Text: strings.Join(*a, " ")}
	all := false
	for m.Metric == "" {
		name, err := a.next()
		if err != nil {
			return err
		}
		_, known := f.Lab.figures[name]
		switch {
		case known && (all || len(m.Kinds) > 0):
			m.Metric = name
		case name == "*" && len(m.Kinds) == 0:
			all = true
		case slices.Contains(f.Lab.kinds, name) && !all:
			m.Kinds = append(m.Kinds, name)
		default:
			return fmt.Errorf("%q is out of place: first kinds (*, or some of %s), then a figure (%s)",
				name, strings.Join(f.Lab.kinds, ", "), oneOf(f.Lab.figures))
		}
	}
	sign, err := a.next()
	if err != nil {
		return err
	}
	if sign != "<=" && sign != ">=" {
		return fmt.Errorf("%q is neither <= nor >=", sign)
	}
	m.AtMost = sign == "<="
	if m.Factor, err = a.number(); err != nil {
		return err
	}
	err = a.pairs(map[string]func() error{
		"of": func() (err error) { m.Of, err = a.next(); return },
		"at": func() (err error) { m.At, err = a.number(); return },
	})
	if _, scale := f.Lab.scales[m.Of]; err == nil && m.Of != "" && !scale && !slices.Contains(f.Lab.kinds, m.Of) {
		err = fmt.Errorf("of %q is of nothing known (a kind, %s)", m.Of, oneOf(f.Lab.scales))
	}
	f.Musts = append(f.Musts, m)
	return err
}

// byFleet orders scenarios of calls in flight: those of one fleet stand together, by the length of
// their calls. Those with a kind more, which is the limiter, are last.
func byFleet(a, b *Family) int {
	return cmp.Or(
		len(a.Kinds)-len(b.Kinds), a.Call.Keys-b.Call.Keys, cmp.Compare(b.Call.Limit, a.Call.Limit),
		a.Processes-b.Processes, cmp.Compare(a.Call.Lasts, b.Call.Lasts),
	)
}

// oneOf lists the keys of a map for an error.
func oneOf[K ~string, V any](m map[K]V) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, string(key))
	}
	return strings.Join(all, ", ")
}
