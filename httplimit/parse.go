package httplimit

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// ServiceLimit is an item of the RateLimit field: what is left of a policy.
type ServiceLimit struct {
	// Policy is the policy's name.
	Policy string
	// Remaining is r, the units that are left.
	Remaining int64
	// Window is t, for how long no more than those can be used; 0: not told.
	Window time.Duration
	// PartitionKey is pk, decoded; empty: none.
	PartitionKey string
}

// QuotaPolicy is an item of the RateLimit-Policy field: what is enforced.
type QuotaPolicy struct {
	// Name is the policy's.
	Name string
	// Quota is q, in units.
	Quota int64
	// Unit is qu; "requests" if it is not told.
	Unit string
	// Window is w; 0: not told.
	Window time.Duration
	// PartitionKey is pk, decoded; empty: none.
	PartitionKey string
}

// ErrMalformed is what the parsers say of a field that the draft wants ignored,
// and of one that is longer than servers have reason to send: 8 KB or 64 items.
var ErrMalformed = errors.New("httplimit: malformed field")

// What is read of a field at most, since a server may send as much as the
// client's transport takes.
const (
	maxFieldBytes = 8 << 10
	maxFieldItems = 64
)

// unitRequests is the unit of a quota that does not name one.
const unitRequests = "requests"

// ParseRateLimit reads the RateLimit fields of a response, by the draft and RFC
// 9651. One wrong item makes all of it ErrMalformed; no field is no items.
func ParseRateLimit(h http.Header) ([]ServiceLimit, error) {
	items, err := parseList(h[fieldRateLimit])
	if err != nil {
		return nil, err
	}
	limits := make([]ServiceLimit, 0, len(items))
	for _, it := range items {
		l := ServiceLimit{Policy: it.name}
		var some, ok bool
		if l.Remaining, some, ok = it.integer("r", 0); !ok || !some {
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

// ParseRateLimitPolicy reads the RateLimit-Policy fields of a response, as
// ParseRateLimit does.
func ParseRateLimitPolicy(h http.Header) ([]QuotaPolicy, error) {
	items, err := parseList(h[fieldPolicy])
	if err != nil {
		return nil, err
	}
	policies := make([]QuotaPolicy, 0, len(items))
	for _, it := range items {
		p := QuotaPolicy{Name: it.name}
		var some, ok bool
		if p.Quota, some, ok = it.integer("q", 0); !ok || !some {
			return nil, ErrMalformed
		}
		if p.Window, ok = it.duration("w", 1); !ok {
			return nil, ErrMalformed
		}
		if p.Unit, ok = it.text("qu", kindString); !ok {
			return nil, ErrMalformed
		}
		if p.Unit == "" {
			p.Unit = unitRequests
		}
		if p.PartitionKey, ok = it.text("pk", kindBytes); !ok {
			return nil, ErrMalformed
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// listItem is a String with its parameters.
type listItem struct {
	name   string
	params map[string]bareItem
}

// integer is a parameter that is an Integer of at least some value; some is
// false where it is not there, ok where it is something else.
func (it listItem) integer(name string, least int64) (n int64, some, ok bool) {
	p, some := it.params[name]
	if !some {
		return 0, false, true
	}
	return p.n, true, p.kind == kindInteger && p.n >= least
}

// maxSeconds is the longest Duration in seconds.
const maxSeconds = int64(1<<63-1) / int64(time.Second)

func (it listItem) duration(name string, least int64) (time.Duration, bool) {
	n, _, ok := it.integer(name, least)
	return time.Duration(min(n, maxSeconds)) * time.Second, ok
}

func (it listItem) text(name string, kind itemKind) (string, bool) {
	p, some := it.params[name]
	return p.s, !some || p.kind == kind
}

// parseList reads a List of Strings (RFC 9651, section 4.2.1); any other member
// is malformed here, inner lists too.
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
			return nil, ErrMalformed // a comma at the end
		}
	}
	return items, nil
}
