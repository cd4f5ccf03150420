package rls

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Options configures a Service. The zero Options are ready to use.
type Options struct {
	// Shadow answers every request with OK. The statuses still tell the limits that are exceeded. Each rule is asked on
	// its own, because no rule denies.
	Shadow bool
	// Quota treats every rule as one with quota_mode: see the package documentation.
	Quota bool
	// StrictCompat asks each rule of a request on its own, as envoyproxy/ratelimit does. A denied request then also
	// counts for the rules that do not deny it. Zero: all rules or none.
	StrictCompat bool
	// AskCosts asks for named costs as for other units: all rules of the request or none. Zero: they are booked. See the
	// package documentation.
	AskCosts bool
	// FailError answers with the gRPC error Unavailable if a decision was made without Redis. Zero: the decision of the
	// limiter's fallback is the answer.
	FailError bool

	// NoDraftHeaders leaves RateLimit and RateLimit-Policy (draft-ietf-httpapi- ratelimit-headers-11) out of the
	// answers. They cost about 200 ns for each rule that was asked.
	NoDraftHeaders bool
	// LegacyHeaders adds the three headers of envoyproxy/ratelimit, about the limit with the fewest units left.
	LegacyHeaders bool
	// LimitHeader, RemainingHeader and ResetHeader are the names of these headers. Empty: RateLimit-Limit,
	// RateLimit-Remaining, RateLimit-Reset.
	LimitHeader, RemainingHeader, ResetHeader string
	// Metadata adds dynamic_metadata to the answers. It costs some µs and repeats the request.
	Metadata bool

	// NearRatio is the part of a limit, above 0 and up to 1, above which the metric near_limit counts. Zero: 0.8.
	NearRatio float64

	// MaxDescriptors is the largest number of descriptors of a request, and of entries of a descriptor. Requests with
	// more are refused with InvalidArgument. Zero: 1000.
	MaxDescriptors int
	// Limiter configures the limiters that the Service makes. Name, LimitFor, LimitRefresh, TagBy, Overshoot,
	// Split, MaxKeyBytes, Classes and Hub are ignored. MaxKeys is for each pair of a domain and an algorithm, and again
	// for each floor of its rules. Zero MaxWait: 15 ms, because Envoy waits 20 ms by default.
	Limiter hybrid.Config
	// Logger receives a line about units that a reload has lost. It never receives keys or values. Nil: slog.Default().
	Logger *slog.Logger
}

const (
	defaultMaxDescriptors = 1000
	defaultMaxWait        = 15 * time.Millisecond
	defaultNearRatio      = 0.8
)

func (o Options) withDefaults() Options {
	if o.MaxDescriptors == 0 {
		o.MaxDescriptors = defaultMaxDescriptors
	}
	if o.NearRatio == 0 {
		o.NearRatio = defaultNearRatio
	}
	if o.Limiter.MaxWait == 0 {
		o.Limiter.MaxWait = defaultMaxWait
	}
	if o.LimitHeader == "" {
		o.LimitHeader = "RateLimit-Limit"
	}
	if o.RemainingHeader == "" {
		o.RemainingHeader = "RateLimit-Remaining"
	}
	if o.ResetHeader == "" {
		o.ResetHeader = "RateLimit-Reset"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func (o Options) violations() adapter.Violations {
	var bad adapter.Violations
	bad.AddIf(o.MaxDescriptors < 0, "Options.MaxDescriptors", o.MaxDescriptors, "must not be negative")
	bad.AddIf(!(o.NearRatio >= 0 && o.NearRatio <= 1), "Options.NearRatio", o.NearRatio, "must be 0 to 1")
	for _, h := range []struct{ field, name string }{
		{"LimitHeader", o.LimitHeader},
		{"RemainingHeader", o.RemainingHeader},
		{"ResetHeader", o.ResetHeader},
	} {
		if h.name != "" && !headerName(h.name) {
			bad.Add("Options."+h.field, fmt.Sprintf("%q", h.name), "must be the name of an HTTP header")
		}
	}
	return bad
}

// headerName reports whether a text can be the name of an HTTP header.
func headerName(s string) bool {
	return strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
