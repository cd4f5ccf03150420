package rules

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/parts"
	"github.com/hybridlimit/hybridlimit/lua"
)

// place is the place of a descriptor in the tree.
type place struct {
	domain string
	metric string // the names of the descriptors, joined by points
	shown  string // metric for errors
	limit  *Rule  // the nearest rate_limit; nil: none
}

// list reads the descriptors inside a descriptor or a domain.
func (b *builder) list(n *yaml.Node, parent *node, at place, depth int) {
	path := under(at.shown, "descriptors")
	switch {
	case n == nil || b.stopped:
		return
	case n.Kind != yaml.SequenceNode:
		b.add(n.Line, path, Other, "", "must be a list of objects, and is "+shown(n))
		return
	case len(n.Content) > 0 && depth == maxDepth:
		b.stop(n.Line, path, fmt.Sprintf("has more than %d descriptors around it", maxDepth))
		return
	}
	for i, e := range n.Content {
		if b.stopped {
			return
		}
		if b.descriptors++; b.descriptors > MaxDescriptors {
			b.stop(e.Line, path, fmt.Sprintf("has descriptor %d; %d is the most in all files", b.descriptors, MaxDescriptors))
			return
		}
		path := fmt.Sprintf("%s[%d]", path, i)
		if e = b.follow(e); e.Kind != yaml.MappingNode {
			b.add(e.Line, path, ElementNotObject, e.Value, "must be an object, and is "+shown(e))
			continue
		}
		b.descriptor(e, path, parent, at, depth)
	}
}

// descriptor reads one descriptor.
func (b *builder) descriptor(n *yaml.Node, path string, parent *node, at place, depth int) {
	fields := b.fields(path, []*yaml.Node{n}, descriptorFields)
	var key, value string
	var regex *field
	for _, f := range fields {
		switch f.name {
		case "key":
			key = b.text(f)
		case "value":
			value = b.text(f)
		case "value_regex":
			if f.value() != nil {
				regex = &f
			}
		}
	}
	d := &node{name: key, key: key}
	if value != "" {
		d.name += "_" + value
	}
	if regex != nil {
		b.regex(d, *regex, value, parent)
	}
	if key == "" {
		b.add(n.Line, path, EmptyKey, "", "must have a key that is not empty")
	} else {
		path = under(at.shown, d.name)
		at.metric, at.shown = at.metric+"."+d.name, path
		if b.pathBytes += len(at.metric); b.pathBytes > maxPaths {
			b.stop(n.Line, path, fmt.Sprintf("makes the paths of all descriptors longer than %d bytes", maxPaths))
			return
		}
		if parent.children[d.name] != nil {
			b.add(n.Line, path, DuplicateRule, at.metric, "is a duplicate; the text of key_value must be unique among its siblings")
		} else {
			parent.add(d)
		}
	}
	var limit *Rule
	var floor *field
	var effect []field         // that only a rate_limit or a floor has
	modes := map[string]bool{} // their values
	var metadata *structpb.Struct
	var children *yaml.Node
	for _, f := range fields {
		f.path = under(path, f.name)
		switch f.name {
		case "shadow_mode", "quota_mode", "detailed_metric":
			modes[f.name], effect = b.boolean(f), append(effect, f)
		case "value_to_metric":
			d.valueToMetric = b.boolean(f)
		case "share_threshold":
			if d.share = b.boolean(f); d.share && !strings.Contains(d.name, "*") && d.regex == nil {
				b.add(f.line, f.path, ShareNotWildcard, d.name, "must be on a descriptor whose value has a *, or with value_regex")
			}
		case "metadata":
			metadata = b.metadata(f)
		case "rate_limit":
			if objects := f.objects(); len(objects) > 0 {
				limit = b.rateLimit(f, objects)
			}
		case "floor":
			if f.value() != nil {
				floor = &f
			}
		case "descriptors":
			children = f.value()
		}
	}
	if d.rule = limit; limit != nil {
		limit.level = depth + 1
	}
	if floor != nil {
		if class := b.floor(*floor, limit, at.limit); class != nil {
			d.rule = class
		}
	}
	if r := d.rule; r != nil {
		r.Domain, r.metric, r.Path = at.domain, at.metric, at.metric
		for i := 2; b.paths[r.Path]; i++ {
			r.Path = at.metric + "#" + strconv.Itoa(i)
		}
		b.paths[r.Path] = true
		r.Shadow, r.Quota = modes["shadow_mode"] || r.Shadow, modes["quota_mode"] || r.Quota
		r.DetailedMetric, r.Metadata = modes["detailed_metric"], cmp.Or(metadata, r.Metadata)
		b.set.rules = append(b.set.rules, r)
	} else if floor == nil {
		for _, f := range effect {
			if modes[f.name] {
				b.warn(f.line, f.path, "has no effect without rate_limit")
			}
		}
	}
	at.limit = cmp.Or(limit, at.limit)
	b.list(children, d, at, depth+1)
}

// add adds a descriptor to its parent.
func (n *node) add(d *node) {
	if n.children == nil {
		n.children, n.wildcards = map[string]*node{}, map[string]*node{}
	}
	n.children[d.name] = d
	n.longest = max(n.longest, len(d.name))
	parts := strings.Split(d.name, "*")
	if len(parts) == 1 && d.regex == nil {
		return
	}
	d.order = n.stars
	n.stars++
	if d.regex != nil {
		n.patterns = append(n.patterns, d)
		return
	}
	prefix := parts[0]
	if len(parts) > 2 || parts[1] != "" {
		d.parts, n.patterns = parts, append(n.patterns, d)
		return
	}
	n.wildcards[prefix] = d
	if i, ok := slices.BinarySearch(n.lengths, len(prefix)); !ok {
		n.lengths = slices.Insert(n.lengths, i, len(prefix))
	}
}

// periods are the lengths of the units.
var periods = map[pb.RateLimitResponse_RateLimit_Unit]time.Duration{
	pb.RateLimitResponse_RateLimit_SECOND: time.Second,
	pb.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	pb.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	pb.RateLimitResponse_RateLimit_DAY:    24 * time.Hour,
	pb.RateLimitResponse_RateLimit_WEEK:   7 * 24 * time.Hour,
	pb.RateLimitResponse_RateLimit_MONTH:  30 * 24 * time.Hour,
	pb.RateLimitResponse_RateLimit_YEAR:   365 * 24 * time.Hour,
}

// Period returns the length of a unit, as Envoy's service has it: a month is 30 days, a year 365. It returns 0 for an
// unknown unit.
func Period(unit pb.RateLimitResponse_RateLimit_Unit) time.Duration { return periods[unit] }

// MaxPeriod is the longest period of a limit, a little below that of hybridlimit.
const MaxPeriod = 35 * 365 * 24 * time.Hour

// rateLimit reads a rate_limit.
func (b *builder) rateLimit(of field, objects []*yaml.Node) *Rule {
	r := &Rule{File: b.file, Line: of.line}
	at := map[string]field{}     // the fields that the object has
	texts := map[string]string{} // of unit, name, algorithm and calendar
	var burst, times int64
	valid, ok := true, true
	for _, f := range b.fields(of.path, objects, limitFields) {
		at[f.name] = f
		switch f.name {
		case "requests_per_unit":
			var requests int64
			requests, ok = b.integer(f, 0, math.MaxUint32)
			r.RequestsPerUnit = uint32(requests)
		case "unlimited":
			r.Unlimited = b.boolean(f)
		case "replaces":
			r.Replaces = b.replaces(f)
		case "unit_multiplier":
			times, ok = b.integer(f, 1, math.MaxUint32)
		case "burst":
			burst, ok = b.integer(f, 1, math.MaxInt64)
		case "overshoot":
			r.Overshoot, _ = b.fraction(f, 1)
		case "split":
			split, _ := b.integer(f, 0, lua.MaxTags)
			r.Split = int(split)
		default:
			texts[f.name] = b.text(f)
		}
		valid = valid && ok
	}
	r.Name = texts["name"]
	unit := texts["unit"]
	if r.Name != "" && slices.Contains(r.Replaces, r.Name) {
		b.add(at["replaces"].line, at["replaces"].path, ReplacesSelf, r.Name, fmt.Sprintf("must not contain the name of the rule itself, %q", abridged(r.Name)))
	}
	number, known := pb.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(unit)]
	r.Unit = pb.RateLimitResponse_RateLimit_Unit(number)
	period := Period(r.Unit)
	line := cmp.Or(at["unit"].line, of.line)
	if r.Unlimited {
		b.unlimited(at, known && period != 0, unit)
		return r
	}
	if period == 0 {
		b.add(line, under(of.path, "unit"), BadUnit, unit, fmt.Sprintf("(%q) must be second, minute, hour, day, week, month or year", abridged(unit)))
		valid = false
	}
	if times > 0 && period != 0 {
		if most := int64(MaxPeriod / period); times > most {
			f := at["unit_multiplier"]
			b.add(f.line, f.path, Other, "", fmt.Sprintf("(%d) must be 1 to %d for the unit %s", times, most, strings.ToLower(unit)))
			valid = false
		} else {
			r.Multiplier, period = uint32(times), period*time.Duration(times)
		}
	}
	if _, ok := at["requests_per_unit"]; !ok {
		b.warn(of.line, under(of.path, "requests_per_unit"), "is missing and so 0: every call is denied")
	}
	r.Limit = b.limit(at, r.RequestsPerUnit, period, texts["algorithm"], burst, valid)
	if f, ok := at["calendar"]; ok && valid && r.Limit != (hybridlimit.Limit{}) {
		r.Limit = b.inCalendar(f, r, texts)
	}
	if f, ok := at["split"]; ok && valid && r.Limit != (hybridlimit.Limit{}) {
		if err := parts.Check(r.Limit, r.Split, lua.MaxTags); err != nil {
			b.add(f.line, f.path, Other, "", "does not fit: "+err.Error())
		}
	}
	return r
}

// unlimited notes the violations of a rule without a limit.
func (b *builder) unlimited(at map[string]field, unit bool, text string) {
	f := at["unit"]
	switch {
	case unit:
		b.add(f.line, f.path, UnitOfUnlimited, text, "must not be there: the rule is unlimited")
	case text != "":
		b.warn(f.line, f.path, "has no effect, and is no unit: the rule is unlimited")
	}
	for _, name := range ownFields {
		if f, ok := at[name]; ok {
			b.add(f.line, f.path, Other, "", "must not be there: the rule is unlimited")
		}
	}
}

// algorithms are the words of the field algorithm. A leaky queue is none: it delays calls, and an answer to Envoy has
// no delay.
var algorithms = map[string]hybridlimit.Algorithm{
	"fixed window":   hybridlimit.AlgFixedWindow,
	"sliding window": hybridlimit.AlgSlidingWindow,
	"sliding log":    hybridlimit.AlgSlidingLog,
	"token bucket":   hybridlimit.AlgTokenBucket,
	"gcra":           hybridlimit.AlgTokenBucket,
	"leaky bucket":   hybridlimit.AlgLeakyBucket,
}

// limit returns the limit of a rule. Valid: its rate, period and burst are.
func (b *builder) limit(at map[string]field, rate uint32, period time.Duration, algorithm string, burst int64, valid bool) hybridlimit.Limit {
	l := hybridlimit.Limit{Algorithm: hybridlimit.AlgFixedWindow, Rate: int64(rate), Period: period, Burst: burst}
	if f := at["algorithm"]; algorithm != "" {
		word := strings.NewReplacer("_", " ", "-", " ").Replace(strings.ToLower(algorithm))
		a, ok := algorithms[word]
		if !ok {
			problem := fmt.Sprintf("(%q) must be fixed_window, sliding_window, sliding_log, token_bucket, gcra or leaky_bucket", abridged(algorithm))
			if word == hybridlimit.AlgLeakyQueue.String() {
				problem = "must not be leaky_queue, which delays calls: an answer to Envoy has no delay. leaky_bucket and token_bucket deny instead"
			}
			b.add(f.line, f.path, Other, "", problem)
		}
		l.Algorithm, valid = a, valid && ok
	}
	if f, ok := at["burst"]; ok && valid && l.Algorithm != hybridlimit.AlgTokenBucket && l.Algorithm != hybridlimit.AlgLeakyBucket {
		b.add(f.line, f.path, Other, "", fmt.Sprintf("must be with token_bucket or leaky_bucket: a %v has no burst", l.Algorithm))
		valid = false
	}
	switch {
	case !valid:
		return hybridlimit.Limit{}
	case rate == 0:
		return hybridlimit.Blocked()
	}
	if err := l.Validate(); err != nil {
		f := at["requests_per_unit"]
		b.add(f.line, f.path, Other, "", "makes a limit that is not valid: "+err.Error())
	}
	return l
}

// inCalendar returns the limit of a rule whose unit is one of a calendar, such as "Europe/Berlin" or "Europe/Berlin from day
// 15". It is a limit that its text names.
func (b *builder) inCalendar(f field, r *Rule, texts map[string]string) hybridlimit.Limit {
	text := texts["calendar"]
	switch {
	case Period(r.Unit) < Period(pb.RateLimitResponse_RateLimit_DAY):
		b.add(f.line, f.path, Other, "", "must be with the unit day, week, month or year")
		return hybridlimit.Limit{}
	case texts["algorithm"] != "":
		b.add(f.line, f.path, Other, "", "must not be with an algorithm: it is one")
		return hybridlimit.Limit{}
	case r.Multiplier > 0:
		b.add(f.line, f.path, Other, "", "must not be with unit_multiplier: its period is one unit")
		return hybridlimit.Limit{}
	}
	l, err := hybridlimit.ParseLimit("1/" + strings.ToLower(r.Unit.String()) + " in " + text)
	var bad *hybridlimit.InvalidError
	switch {
	case errors.As(err, &bad):
		last := bad.Violations[len(bad.Violations)-1]
		problem := last.Problem
		if last.Field != "Limit" {
			problem = last.String()
		}
		b.add(f.line, f.path, Other, "", fmt.Sprintf("(%q) must be a time zone such as Europe/Berlin, or one and a begin such as \"from day 15\": %s", abridged(text), problem))
		return hybridlimit.Limit{}
	case r.Limit.Algorithm == hybridlimit.AlgBlocked:
		return r.Limit
	}
	l.Rate = int64(r.RequestsPerUnit)
	return l
}

// fraction reads a number from 0 to most. Null is 0.
func (b *builder) fraction(f field, most float64) (value float64, ok bool) {
	n := f.value()
	if n == nil {
		return 0, true
	}
	value, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || !isPlain(n) || !(value >= 0 && value <= most) {
		b.add(n.Line, f.path, Other, "", fmt.Sprintf("must be a number from 0 to %v, and is %s", most, shown(n)))
		return 0, false
	}
	return value, true
}

// replaces reads the names of the rules that a rule replaces.
func (b *builder) replaces(f field) (names []string) {
	n := f.value()
	switch {
	case n == nil:
		return nil
	case n.Kind != yaml.SequenceNode:
		b.add(n.Line, f.path, Other, "", "must be a list of objects, and is "+shown(n))
		return nil
	}
	for i, e := range n.Content {
		path := fmt.Sprintf("%s[%d]", f.path, i)
		if e = b.follow(e); e.Kind != yaml.MappingNode {
			b.add(e.Line, path, ElementNotObject, e.Value, "must be an object with a name, and is "+shown(e))
			continue
		}
		name, line := "", e.Line
		for _, g := range b.fields(path, []*yaml.Node{e}, replacesFields) {
			name, line = b.text(g), g.line
		}
		if name == "" {
			b.add(line, path, EmptyReplaces, "", "must have a name that is not empty")
		}
		names = append(names, name)
	}
	return names
}
