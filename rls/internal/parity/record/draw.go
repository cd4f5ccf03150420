package main

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/rls/internal/parity"
)

// The size of a case.
const (
	rounds = 3
	probes = 10 // of a round
)

// descriptor is a descriptor of a configuration, as far as requests depend on it.
type descriptor struct {
	Key, Value  string
	Descriptors []descriptor
}

// maker draws requests for a configuration.
type maker struct {
	*rand.Rand
	domains []string
	trees   map[string][]descriptor // by domain
	limits  bool                    // some descriptors have a limit of their own
}

// draw returns requests without answers. They depend on the name and the files of the case only.
func draw(c *parity.Case) [][]parity.Probe {
	h := fnv.New64a()
	h.Write([]byte(c.Head))
	m := &maker{Rand: rand.New(rand.NewPCG(h.Sum64(), 40)), trees: map[string][]descriptor{}, limits: c.Has(parity.Limits)}
	for _, f := range c.Files {
		var root struct {
			Domain      string
			Descriptors []descriptor
		}
		if yaml.Unmarshal([]byte(f.Text), &root) != nil || root.Domain == "" {
			continue
		}
		if m.trees[root.Domain] == nil {
			m.domains = append(m.domains, root.Domain)
		}
		m.trees[root.Domain] = append(m.trees[root.Domain], root.Descriptors...)
	}
	if len(m.domains) == 0 {
		m.domains = []string{"none"}
	}
	all := make([][]parity.Probe, rounds)
	for r := range all {
		for range probes {
			all[r] = append(all[r], parity.Probe{Request: m.request()})
		}
	}
	return all
}

// request draws a request.
func (m *maker) request() *pb.RateLimitRequest {
	domain := m.domains[m.IntN(len(m.domains))]
	req := &pb.RateLimitRequest{Domain: domain}
	if m.IntN(4) == 0 {
		req.HitsAddend = uint32(m.IntN(6))
	}
	n := 1
	if m.IntN(2) == 0 {
		n = 1 + m.IntN(4)
	}
	for range n {
		d := m.descriptor(m.trees[domain])
		switch m.IntN(8) {
		case 0, 1:
			d.HitsAddend = wrapperspb.UInt64(m.Uint64N(6))
		case 2:
			if m.limits {
				d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: typev3.RateLimitUnit_HOUR}
			}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	if m.IntN(60) == 0 {
		req.Domain += "x"
	}
	return req
}

// descriptor draws a descriptor of the tree, and sometimes one beside it.
func (m *maker) descriptor(at []descriptor) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for depth := 0; ; depth++ {
		entry := &ratelimit.RateLimitDescriptor_Entry{Key: "other", Value: "v"}
		var next []descriptor
		if len(at) > 0 && m.IntN(16) > 0 {
			one := at[m.IntN(len(at))]
			entry.Key, entry.Value, next = m.fill(one.Key), m.value(one.Value), one.Descriptors
		}
		d.Entries = append(d.Entries, entry)
		if len(next) == 0 && m.IntN(24) > 0 || len(next) > 0 && m.IntN(4) == 0 || depth > 5 {
			return d
		}
		at = next
	}
}

// value draws a value that a descriptor matches, and sometimes another one.
func (m *maker) value(of string) string {
	switch {
	case m.IntN(12) == 0:
		return []string{"", "v1", "*", "A", "x*", "0"}[m.IntN(6)]
	case of == "":
		return []string{"v1", "v1", "v2", ""}[m.IntN(4)]
	}
	return m.fill(of)
}

// fill draws texts for the asterisks of a pattern.
func (m *maker) fill(pattern string) string {
	parts := strings.Split(pattern, "*")
	text := parts[0]
	for _, p := range parts[1:] {
		text += []string{"", "1", "1", "2", "*", "a/b"}[m.IntN(6)] + p
	}
	return text
}
