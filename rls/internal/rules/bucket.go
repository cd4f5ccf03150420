package rules

import (
	"maps"
	"slices"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// MaxBucket is the largest number of entries of a bucket: FindBucket tries their orders.
const MaxBucket = 8

// FindBucket returns the rule of a bucket of Envoy's quota service, which is a descriptor whose entries have no order.
// The order is the one that leads to a rule; of several, the one whose keys are alphabetically first. Known reports
// whether the domain is known. A bucket of more than MaxBucket entries has no rule.
func (s *Set) FindBucket(domain string, bucket map[string]string) (m Match, known bool) {
	at, known := s.domains[domain]
	if !known || len(bucket) == 0 || len(bucket) > MaxBucket {
		return Match{}, known
	}
	keys := slices.Sorted(maps.Keys(bucket))
	d := &ratelimit.RateLimitDescriptor{}
	for _, key := range ordered(at, keys, bucket, nil) {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: bucket[key]})
	}
	if len(d.Entries) == 0 {
		return Match{}, true
	}
	return s.Find(domain, d)
}

// ordered returns the keys in the first order that leads from a node to a rule; nil: there is none.
func ordered(at *node, keys []string, bucket map[string]string, before []string) []string {
	if len(keys) == 0 {
		if at.rule == nil {
			return nil
		}
		return before
	}
	for i, key := range keys {
		next := at.next(key, bucket[key]).node
		if next == nil {
			continue
		}
		rest := slices.Concat(keys[:i], keys[i+1:])
		if found := ordered(next, rest, bucket, append(slices.Clone(before), key)); found != nil {
			return found
		}
	}
	return nil
}
