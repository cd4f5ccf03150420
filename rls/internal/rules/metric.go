package rules

import (
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// metric returns the name under which Envoy's service counts a descriptor. Most rules have one name for all
// descriptors.
func metric(r *Rule, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	if r.DetailedMetric {
		return detailed(r.Domain, entries, steps)
	}
	for i, e := range entries {
		if s := steps[i]; part(s, e) != partName {
			return open(r.Domain, entries, steps)
		}
	}
	return r.metric
}

// The part of a metric that an entry has.
type metricPart uint8

const (
	partName    metricPart = iota // the name of the descriptor
	partKey                       // the key
	partValue                     // the key and the value
	partPattern                   // the key and the whole name of a wildcard that begins otherwise
)

// part returns the part of a metric that an entry has.
func part(s step, e *ratelimit.RateLimitDescriptor_Entry) metricPart {
	key, value := e.GetKey(), e.GetValue()
	switch {
	case s.how == byWildcard && (s.node.share || !s.node.valueToMetric):
		if _, ok := pattern(s.node.name, key); !ok {
			return partPattern
		}
		return partName
	case s.how == byKey && (!s.node.valueToMetric || value == ""), s.how == exactly && value != "":
		return partName
	case value == "":
		return partKey
	}
	return partValue
}

// open returns a metric in which some entries have their values.
func open(domain string, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	var space [256]byte
	m := append(space[:0], domain...)
	for i, e := range entries {
		m = append(m, '.')
		switch part(steps[i], e) {
		case partName:
			m = append(m, steps[i].node.name...)
		case partKey:
			m = append(m, e.GetKey()...)
		case partValue:
			m = join(m, e.GetKey(), e.GetValue())
		case partPattern:
			m = join(m, e.GetKey(), steps[i].node.name)
		}
	}
	return string(m)
}

// detailed returns the metric of a rule with detailed_metric: all entries have their values, or the wildcard that they
// share. Without such a wildcard an empty value leaves its underscore.
func detailed(domain string, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	shares := false
	for _, s := range steps {
		shares = shares || s.shared()
	}
	var space [256]byte
	m := append(space[:0], domain...)
	for i, e := range entries {
		m = append(m, '.')
		switch {
		case steps[i].shared():
			value, _ := pattern(steps[i].node.name, e.GetKey())
			m = join(m, e.GetKey(), value)
		case shares && e.GetValue() == "":
			m = append(m, e.GetKey()...)
		default:
			m = join(m, e.GetKey(), e.GetValue())
		}
	}
	return string(m)
}

// shared reports whether the wildcard of a step stands for the value.
func (s step) shared() bool { return s.how == byWildcard && s.node.share }

func join(m []byte, key, value string) []byte {
	return append(append(append(m, key...), '_'), value...)
}
