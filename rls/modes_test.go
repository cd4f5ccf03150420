package rls

import (
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const modeRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: many
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: dark
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: budget
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
  - key: zero
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: named
    rate_limit: {name: common, unit: day, requests_per_unit: 1}
  - key: special
    rate_limit: {name: special, unit: day, requests_per_unit: 5, replaces: [{name: common}]}
`

// step is a request and its answer.
type step struct {
	req  *pb.RateLimitRequest
	want string
}

// to is a step of the domain of modeRules.
func to(want string, ds ...*ratelimit.RateLimitDescriptor) step {
	return step{request("shop", ds...), want}
}

// given gives a descriptor a limit of its own.
func given(d *ratelimit.RateLimitDescriptor, n uint32, unit typev3.RateLimitUnit, times uint32) *ratelimit.RateLimitDescriptor {
	d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	if times > 0 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return d
}

// back makes a descriptor give units back.
func back(d *ratelimit.RateLimitDescriptor, n uint64) *ratelimit.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(d, n)
}

func addend(s step, n uint32) step {
	s.req.HitsAddend = n
	return s
}

const daily, hourly = typev3.RateLimitUnit_DAY, typev3.RateLimitUnit_HOUR

var modeCases = []struct {
	name  string
	o     Options
	steps []step
}{
	{"one rule", Options{}, []step{
		to("ok: ok(1)", desc("user", "a")),
		to("ok: ok(1)", desc("user", "b")),
		to("ok: ok(0)", desc("user", "a")),
		to("over: over(0)", desc("user", "a")),
	}},
	{"no rule, unlimited, zero", Options{}, []step{
		{request("another", desc("user", "a")), "ok: ok"},
		to("ok: ok", desc("unknown", "a")),
		to("ok: ok ok", desc("free", "a"), desc("unknown", "")),
		to("over: over(0)", desc("zero", "a")),
		to("over: over(0) ok(2)", desc("zero", "a"), desc("user", "a")),
		to("ok: ok(1)", desc("user", "a")), // the denied request has taken nothing
	}},
	{"all or none", Options{}, []step{
		to("ok: ok(1) ok(9)", desc("user", "a"), desc("many", "a")),
		to("ok: ok(0) ok(8)", desc("user", "a"), desc("many", "a")),
		to("over: over(0) ok(8)", desc("user", "a"), desc("many", "a")),
		to("over: over(0) ok(8)", desc("user", "a"), desc("many", "a")),
	}},
	{"strict", Options{StrictCompat: true}, []step{
		to("ok: ok(1) ok(9)", desc("user", "a"), desc("many", "a")),
		to("ok: ok(0) ok(8)", desc("user", "a"), desc("many", "a")),
		to("over: over(0) ok(7)", desc("user", "a"), desc("many", "a")),
		to("over: over(0) ok(6)", desc("user", "a"), desc("many", "a")),
	}},
	{"shadow rule", Options{}, []step{
		to("ok: ok(0) ok(9)", desc("dark", "a"), desc("many", "a")),
		to("ok: ok(0) ok(8)", desc("dark", "a"), desc("many", "a")),
	}},
	{"quota rule", Options{}, []step{
		to("ok: ok(0) ok(9)", desc("budget", "a"), desc("many", "a")),
		to("over: over(0) ok(9)", desc("budget", "a"), desc("many", "a")), // all quotas are used up; it takes nothing
		to("over: over(0)", desc("budget", "a")),
		to("ok: over(0) ok(0) ok(8)", desc("budget", "a"), desc("budget", "b"), desc("many", "a")), // one quota is left
		to("over: over(0) over(0) ok(8)", desc("budget", "a"), desc("budget", "b"), desc("many", "a")),
		to("over: over(0) ok ok ok(1)", desc("budget", "a"), desc("free", "a"), desc("unknown", "a"), desc("dark", "a")),
		to("over: over(0) over(0)", hits(desc("budget", "a"), 0), hits(desc("budget", "b"), 5)),
		to("over: over(0) over(0) ok(7)", desc("budget", "a"), desc("zero", ""), hits(desc("many", "a"), 1)),
		to("ok: ok(0) over(0)", desc("budget", "c"), hits(desc("budget", "a"), 2)),
	}},
	{"a limit of 0 that is a quota", Options{Quota: true}, []step{
		to("over: over(0)", desc("zero", "")),
		to("ok: over(0) ok(1)", desc("zero", ""), desc("user", "a")),
		to("ok: over(0) ok", desc("zero", ""), desc("unknown", "a")), // without a rule it is a quota that passes
		to("over: over(0) ok", desc("zero", ""), desc("free", "a")),  // without a limit it is none
		to("ok: over(0) ok(0)", desc("zero", ""), desc("dark", "a")), // in shadow it passes
		to("ok: over(0) ok(0)", desc("zero", ""), desc("dark", "a")),
		to("ok: over(0) ok ok(4)", desc("zero", ""), desc("named", "a"), desc("special", "a")), // and so it does replaced
	}},
	{"a denial uses up no quota", Options{}, []step{
		to("over: over(0) ok(1) ok(1)", desc("zero", ""), desc("budget", "a"), desc("dark", "a")),
		to("over: over(0) ok(1) ok(1)", desc("zero", ""), desc("budget", "a"), desc("dark", "a")),
	}},
	{"global shadow", Options{Shadow: true}, []step{
		to("ok: ok(1) ok(9)", desc("user", "a"), desc("many", "a")),
		to("ok: ok(0) ok(8)", desc("user", "a"), desc("many", "a")),
		to("ok: over(0) ok(7)", desc("user", "a"), desc("many", "a")),
	}},
	{"global quota", Options{Quota: true}, []step{
		to("ok: ok(1)", desc("user", "a")),
		to("ok: ok(0)", desc("user", "a")),
		to("over: over(0)", desc("user", "a")),
	}},
	{"global quota in global shadow", Options{Quota: true, Shadow: true}, []step{
		to("ok: over(0)", desc("zero", "")),
	}},
	{"replaces", Options{}, []step{
		to("ok: ok ok(4)", desc("named", "a"), desc("special", "a")),
		to("ok: ok ok(3)", desc("named", "a"), desc("special", "a")),
		to("ok: ok(0)", desc("named", "a")),
		to("over: over(0)", desc("named", "a")),
	}},
	{"override", Options{}, []step{
		to("ok: ok(2)", given(desc("user", "a"), 3, daily, 0)),
		to("ok: ok(1)", given(desc("user", "a"), 3, daily, 0)),
		to("ok: ok(7)", given(desc("user", "a"), 10, daily, 0)), // used units stay used
		to("ok: ok(4)", given(desc("user", "a"), 5, hourly, 0)), // another count
		to("ok: ok(3)", given(desc("user", "a"), 5, hourly, 0)),
		to("ok: ok(4)", given(desc("user", "a"), 5, hourly, 2)),
		to("ok: ok(6)", given(desc("user", "a"), 10, daily, 0)),
		to("ok: ok(6)", hits(given(desc("user", "a"), 10, daily, 0), 0)),
		to("ok: ok(8)", back(given(desc("user", "a"), 10, daily, 0), 2)),
		to("ok: ok(1)", desc("user", "a")), // the rule has a count of its own
		to("over: over(0) ok(1)", given(desc("x", "a"), 0, daily, 0), desc("user", "a")),
		to("ok: ok(7) ok(0)", given(desc("user", "a"), 10, daily, 0), desc("user", "a")),
		to("over: ok(7) over(0)", given(desc("user", "a"), 10, daily, 0), desc("user", "a")),
		{request("another", given(desc("user", "a"), 1, daily, 0)), "ok: ok"},
	}},
	{"addend that is asked", Options{AskCosts: true}, []step{
		addend(to("ok: ok(6)", desc("many", "a")), 4),
		addend(to("over: over(0)", desc("many", "a")), 7), // takes nothing
		addend(to("over: over(0)", desc("many", "a")), 11),
		addend(to("ok: ok(0)", desc("many", "a")), 6),
	}},
	{"addend", Options{}, []step{
		addend(to("ok: ok(6)", desc("many", "a")), 4),
		addend(to("over: over(0)", desc("many", "a")), 7), // and takes the rest
		to("over: over(0)", desc("many", "a")),
		addend(to("over: over(0) ok(7)", desc("user", "b"), desc("many", "b")), 3),
		to("over: over(0) ok(6)", desc("user", "b"), hits(desc("many", "b"), 1)), // an addend of 1 is a cost too
		to("over: over(0) ok(6)", desc("user", "b"), desc("many", "b")),
		addend(to("over: over(0) ok(6)", desc("zero", ""), hits(desc("many", "b"), 0)), 2),
	}},
	{"addend of a descriptor that is asked", Options{AskCosts: true}, []step{
		to("over: over(0)", hits(desc("many", "a"), 11)),
		to("over: over(0) ok(10)", desc("zero", ""), hits(desc("many", "a"), 4)),
		to("ok: ok(2) ok(1)", hits(desc("many", "a"), 8), desc("user", "a")),
		to("over: over(0) ok(1)", hits(desc("many", "a"), 3), desc("user", "a")),
	}},
	{"addend of a descriptor", Options{}, []step{
		addend(to("ok: ok(8) ok(1)", hits(desc("many", "a"), 2), desc("user", "a")), 1),
		to("ok: ok(8)", hits(desc("many", "a"), 0)),
		to("ok: ok(8) ok(0)", hits(desc("many", "a"), 0), desc("user", "a")),
		to("ok: ok(9)", back(desc("many", "a"), 1)),
		to("ok: ok(10)", back(desc("many", "a"), 100)),
		to("ok: ok(1)", hits(desc("many", "a"), 9)),
		// The cost of a call that is over uses up the rest, although it is denied.
		to("over: over(0)", hits(desc("many", "a"), 9)),
		to("over: over(0)", hits(desc("many", "a"), 0)),
		to("over: over(0) ok(2)", hits(desc("many", "a"), 0), desc("user", "b")),
		to("ok: ok(1)", desc("user", "b")),
		to("over: over(0)", hits(desc("many", "b"), 1<<60)),
		to("over: over(0)", desc("many", "b")),
	}},
	{"one key twice", Options{}, []step{
		to("ok: ok(0) ok(0)", desc("user", "a"), desc("user", "a")),
		to("over: over(0) over(0)", desc("user", "a"), desc("user", "a")),
	}},
	{"a cost in shadow is used", Options{}, []step{
		addend(to("ok: ok(0)", desc("dark", "a")), 5),
		to("ok: ok(0)", desc("dark", "a")),
	}},
}

func TestModes(t *testing.T) {
	for _, c := range modeCases {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, modeRules, c.o)
			for i, one := range c.steps {
				if got := ask(t, s, one.req); got != one.want {
					t.Errorf("step %d: %s, want %s", i, got, one.want)
				}
			}
		})
	}
}
