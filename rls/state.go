package rls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// Rules are the rules of all domains: the content of configuration files. They do not change, and are safe for
// concurrent use.
type Rules = rules.Set

// File is a configuration file in the YAML of envoyproxy/ratelimit.
type File = rules.File

// RulesError is one violation in a configuration file, with its file, line and path. The error of ParseRules joins one
// for each violation.
type RulesError = rules.Error

// ParseRules reads configuration files. With merge, files may share a domain. It stops after 100 violations. It refuses
// a file with more than 32 768 values and less than 4 bytes for each before it parses it.
func ParseRules(files []File, merge bool) (*Rules, error) {
	return rules.Parse(files, merge)
}

// ruleState is a rule that is in force.
type ruleState struct {
	*rules.Rule
	kind    kind
	prefix  string                          // of the keys
	limiter *hybrid.Limiter                 // the view of the floor; nil if every answer is the same: Unlimited, or Blocked
	limit   hybridlimit.Limit               // above the floor
	answer  *pb.RateLimitResponse_RateLimit // shared by all answers, so nobody may change it
	item    *ratelimitheader.Item           // nil: not published
	counts  *ruleCounts
}

// blocked reports whether the rule denies everything.
func (r *ruleState) blocked() bool { return r.Limit.Algorithm == hybridlimit.AlgBlocked }

// state is the rules in force. It does not change.
type state struct {
	set      *rules.Set
	rules    map[*rules.Rule]*ruleState
	prefixes map[place]*ruleState
	domains  map[string]bool
	without  map[string]*atomic.Uint64 // descriptors without a rule, by domain
	before   *state                    // the rules before these, for calls that began with them
}

// place finds a rule again from the key of a limiter.
type place struct{ domain, prefix string }

// limitOf returns the limit of a key of a limiter.
func (st *state) limitOf(k kind, key string) (limit hybridlimit.Limit, ok bool) {
	if len(key) < prefixBytes {
		return limit, false
	}
	r := st.prefixes[place{k.domain, key[:prefixBytes]}]
	if r == nil || r.kind != k {
		return limit, false
	}
	return r.Limit, true
}

// SetRules puts rules in force. A rule whose limit changes takes effect with the next request. Used units stay used. A
// rule that does not change keeps its counts. With another algorithm, overshoot or split, a rule begins with unused
// counts.
//
// With other floors a rule keeps its counts. Then SetRules sends the units owed of all rules of the domain with this
// algorithm and overshoot to Redis, and their requests wait for it: some ms, and at most a second. Units that Redis
// grants to a request at that moment are lost. Without Redis each replica begins with a new share of these limits.
//
// On an error the rules before stay in force. SetRules counts no errors: see CountRefused.
func (s *Service) SetRules(set *Rules) error {
	if set == nil {
		return errors.New("rls: the rules must not be nil")
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	old := s.state.Load()
	next := &state{
		set: set, rules: map[*rules.Rule]*ruleState{}, prefixes: map[place]*ruleState{},
		domains: map[string]bool{}, without: map[string]*atomic.Uint64{},
	}
	for _, domain := range set.Domains() {
		next.domains[domain], next.without[domain] = true, s.metrics.without.get(domain)
	}
	if old != nil {
		next.before = &state{set: old.set, rules: old.rules, prefixes: old.prefixes}
	}
	if err := s.setFloors(set); err != nil {
		return err
	}
	var errs []error
	for _, rule := range set.Rules() {
		r, err := s.ruleState(rule)
		if err != nil {
			errs = append(errs, &rules.Error{File: rule.File, Line: rule.Line, Path: rule.Path, Text: err.Error()})
			continue
		}
		next.rules[rule] = r
		if rule.Of == nil {
			next.prefixes[place{rule.Domain, r.prefix}] = r
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.state.Store(next)
	if err := s.limiters.askAgain(changed(old, next)); err != nil {
		return err
	}
	s.metrics.loads.Add(1)
	return nil
}

// CountRefused counts a configuration that was refused before it became rules.
func (s *Service) CountRefused() { s.metrics.loadErrors.Add(1) }

// setFloors gives the limiters the floors of rules.
func (s *Service) setFloors(set *Rules) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	var errs []error
	for k, floors := range floorsOf(set) {
		lost, err := s.limiters.withFloors(ctx, k, floors)
		if err == nil && lost != nil {
			s.options.Logger.Warn("rls: the floors of a domain have changed, and Redis does not know of units that were admitted before; they are lost",
				slog.String("limiter", k.name()), slog.Any("error", lost))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ruleState prepares a rule.
func (s *Service) ruleState(rule *rules.Rule) (*ruleState, error) {
	r := &ruleState{
		Rule: rule, prefix: prefixOf(rule.Path), kind: kindOf(rule), limit: ofFloor(rule.Limit, rule.Floor),
		answer: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: rule.RequestsPerUnit, Unit: rule.Unit, Name: rule.Name},
		counts: s.metrics.rule(rule.Path),
	}
	if rule.Multiplier > 0 {
		r.answer.UnitMultiplier = wrapperspb.UInt32(rule.Multiplier)
	}
	name := rule.Name
	if rule.Of != nil {
		r.prefix = prefixOf(rule.Of.Path)
		if rule.Floor > 0 {
			name = fmt.Sprintf("%s floor %v", cmp.Or(name, inWords(r.answer)), rule.Floor)
		}
		r.answer.RequestsPerUnit -= uint32(rule.Limit.Rate - r.limit.Rate) // of windows
	}
	if rule.Unlimited || r.blocked() {
		return r, nil
	}
	if err := rule.Limit.Validate(); err != nil {
		return nil, err
	}
	l, err := s.limiters.get(r.kind)
	if err != nil {
		return nil, err
	}
	r.limiter, r.item = viewOf(l, rule.Floor), itemOf(name, r.answer, r.limit)
	return r, nil
}

// itemOf returns the item of the draft's fields. Its name is that of the rule, or the limit in words: the path of a
// rule may be a secret.
func itemOf(name string, l *pb.RateLimitResponse_RateLimit, limit hybridlimit.Limit) *ratelimitheader.Item {
	it, ok := ratelimitheader.NewItem(cmp.Or(name, inWords(l)), limit)
	if !ok {
		return nil
	}
	return &it
}

// inWords returns a limit as "100/minute".
func inWords(l *pb.RateLimitResponse_RateLimit) string {
	if m := l.GetUnitMultiplier(); m != nil {
		return fmt.Sprintf("%d/%d%s", l.GetRequestsPerUnit(), m.GetValue(), unitNames[l.GetUnit()])
	}
	return fmt.Sprintf("%d/%s", l.GetRequestsPerUnit(), unitNames[l.GetUnit()])
}

var unitNames = map[pb.RateLimitResponse_RateLimit_Unit]string{
	pb.RateLimitResponse_RateLimit_SECOND: "second",
	pb.RateLimitResponse_RateLimit_MINUTE: "minute",
	pb.RateLimitResponse_RateLimit_HOUR:   "hour",
	pb.RateLimitResponse_RateLimit_DAY:    "day",
	pb.RateLimitResponse_RateLimit_WEEK:   "week",
	pb.RateLimitResponse_RateLimit_MONTH:  "month",
	pb.RateLimitResponse_RateLimit_YEAR:   "year",
}

// changed returns the kinds of the limiters with a key that may have another limit now. A rule that is new may have
// been there before.
func changed(old, next *state) map[kind]bool {
	kinds := map[kind]bool{}
	if old == nil {
		return kinds
	}
	for at, r := range next.prefixes {
		if was := old.prefixes[at]; r.limiter != nil && (was == nil || was.Limit != r.Limit || was.kind != r.kind) {
			kinds[r.kind] = true
		}
	}
	return kinds
}
