package ratelimitheader

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// The field names, in the canonical form of http.Header.
const (
	FieldRateLimit = "Ratelimit"
	FieldPolicy    = "Ratelimit-Policy"
)

// ServiceLimit is an item of the RateLimit field: the units left under one policy.
type ServiceLimit struct {
	// Policy is the policy's name.
	Policy string
	// Remaining is r: the units left.
	Remaining int64
	// Window is t: the client may use at most Remaining units in this time. Zero: the item has no t.
	Window time.Duration
	// PartitionKey is pk, decoded. Empty: the item has no pk.
	PartitionKey string
}

// QuotaPolicy is an item of the RateLimit-Policy field: a policy that the server enforces.
type QuotaPolicy struct {
	// Name is the policy's name.
	Name string
	// Quota is q, in units.
	Quota int64
	// Unit is qu. UnitRequests if the item has no qu.
	Unit string
	// Window is w. Zero: the item has no w.
	Window time.Duration
	// PartitionKey is pk, decoded. Empty: the item has no pk.
	PartitionKey string
}

// UnitRequests is the unit of a quota without qu.
const UnitRequests = "requests"

// ErrMalformed is returned for a field that a client must ignore according to the
// draft, and for a field of more than 8 KB or 64 items.
var ErrMalformed = errors.New("ratelimitheader: malformed field")

// The most that is read of one field. A server may send as much as the client's transport accepts.
const (
	maxFieldBytes = 8 << 10
	maxFieldItems = 64
)

// ParseRateLimit reads the RateLimit fields of a response. One malformed item makes all of them malformed
// (ErrMalformed). Without the field it returns no items and no error.
func ParseRateLimit(h http.Header) ([]ServiceLimit, error) {
	items, err := parseList(h[FieldRateLimit])
	if err != nil {
		return nil, err
	}
	limits := make([]ServiceLimit, 0, len(items))
	for _, it := range items {
		l := ServiceLimit{Policy: it.name}
		var present, ok bool
		if l.Remaining, present, ok = it.integer("r", 0); !ok || !present {
			return nil, ErrMalformed
		}
		if l.Window, ok = it.duration("t", 0); !ok {
			return nil, ErrMalformed
		}
		if l.PartitionKey, ok = it.text("pk", kindBytes); !ok {
			return nil, ErrMalformed
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// ParseRateLimitPolicy reads the RateLimit-Policy fields of a response. It treats
// malformed and missing fields as ParseRateLimit does.
func ParseRateLimitPolicy(h http.Header) ([]QuotaPolicy, error) {
	items, err := parseList(h[FieldPolicy])
	if err != nil {
		return nil, err
	}
	policies := make([]QuotaPolicy, 0, len(items))
	for _, it := range items {
		p := QuotaPolicy{Name: it.name}
		var present, ok bool
		if p.Quota, present, ok = it.integer("q", 0); !ok || !present {
			return nil, ErrMalformed
		}
		if p.Window, ok = it.duration("w", 1); !ok {
			return nil, ErrMalformed
		}
		if p.Unit, ok = it.text("qu", kindString); !ok {
			return nil, ErrMalformed
		}
		if p.Unit == "" {
			p.Unit = UnitRequests
		}
		if p.PartitionKey, ok = it.text("pk", kindBytes); !ok {
			return nil, ErrMalformed
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// listItem is a String and its parameters.
type listItem struct {
	name   string
	params map[string]bareItem
}

// integer returns the value of an Integer parameter. present is false if the item has no such parameter. ok is false if
// the parameter is not an Integer, or is below least.
func (it listItem) integer(name string, least int64) (n int64, present, ok bool) {
	p, present := it.params[name]
	if !present {
		return 0, false, true
	}
	return p.n, true, p.kind == kindInteger && p.n >= least
}

// maxSeconds is the longest time.Duration, in whole seconds.
const maxSeconds = int64(1<<63-1) / int64(time.Second)

// duration returns an Integer parameter as seconds, cut to maxSeconds. A missing parameter is 0 and ok.
func (it listItem) duration(name string, least int64) (time.Duration, bool) {
	n, _, ok := it.integer(name, least)
	return time.Duration(min(n, maxSeconds)) * time.Second, ok
}

// text returns a parameter of the given kind. A missing parameter is "" and ok.
func (it listItem) text(name string, kind itemKind) (string, bool) {
	p, present := it.params[name]
	return p.s, !present || p.kind == kind
}

// parseList reads a List of Strings (RFC 9651, section 4.2.1). A member of any
// other type, such as an Inner List, is malformed.
func parseList(lines []string) ([]listItem, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	size := 0
	for _, line := range lines {
		if size += len(line) + 1; size > maxFieldBytes+1 {
			return nil, ErrMalformed
		}
	}
	p := &parser{in: strings.TrimLeft(strings.Join(lines, ","), " ")}
	var items []listItem
	for p.in != "" {
		if len(items) >= maxFieldItems {
			return nil, ErrMalformed
		}
		b, ok := p.bare()
		if !ok || b.kind != kindString {
			return nil, ErrMalformed
		}
		it := listItem{name: b.s}
		if it.params, ok = p.parameters(); !ok {
			return nil, ErrMalformed
		}
		items = append(items, it)
		if p.skip(" \t"); p.in == "" {
			return items, nil
		}
		if !p.take(',') {
			return nil, ErrMalformed
		}
		if p.skip(" \t"); p.in == "" {
			return nil, ErrMalformed // trailing comma
		}
	}
	return items, nil
}
