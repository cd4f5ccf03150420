// Package quotatest plays Envoy's side of rate limit quotas, for tests.
package quotatest

import (
	"fmt"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Assignment is an answer about a bucket.
type Assignment = pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction

// Envoy is the local rate limit of an Envoy with one bucket.
type Envoy struct {
	Rate            float64   // of the assignment, in tokens a second
	Expires         time.Time // the assignment; nothing passes then
	Reported        time.Time // of the last report
	Allowed, Denied uint64    // requests since the last report

	most, tokens float64
	pending      float64 // part of a request
}

// Pass passes up to asked requests in a step of time. It returns the number of those that passed, and of all that came:
// a part of a request comes with the next ones.
func (e *Envoy) Pass(asked float64, step time.Duration, now time.Time) (passed, came float64) {
	if now.After(e.Expires) {
		e.Rate, e.tokens = 0, 0
	}
	e.tokens = min(e.tokens+e.Rate*step.Seconds(), e.most)
	e.pending += asked
	came = float64(int64(e.pending))
	e.pending -= came
	passed = min(came, float64(int64(e.tokens)))
	e.tokens -= passed
	e.Allowed += uint64(passed)
	e.Denied += uint64(came - passed)
	return passed, came
}

// Report returns a report, and begins the next one.
func (e *Envoy) Report(domain string, bucket map[string]string, now time.Time) *pb.RateLimitQuotaUsageReports {
	used := &pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: &pb.BucketId{Bucket: bucket}, TimeElapsed: durationpb.New(now.Sub(e.Reported)),
		NumRequestsAllowed: e.Allowed, NumRequestsDenied: e.Denied,
	}
	e.Reported, e.Allowed, e.Denied = now, 0, 0
	return &pb.RateLimitQuotaUsageReports{
		Domain: domain, BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{used},
	}
}

// Hear takes an assignment. A changed token bucket is full.
func (e *Envoy) Hear(a *Assignment, now time.Time) error {
	b := a.GetRateLimitStrategy().GetTokenBucket()
	rate := 0.0
	if b != nil {
		rate = float64(b.GetTokensPerFill().GetValue()) / b.GetFillInterval().AsDuration().Seconds()
	} else if a.GetRateLimitStrategy().GetBlanketRule() != typev3.RateLimitStrategy_DENY_ALL {
		return fmt.Errorf("an assignment without a limit: %v", a)
	}
	if rate != e.Rate || now.After(e.Expires) {
		e.Rate, e.most, e.tokens = rate, float64(b.GetMaxTokens()), float64(b.GetMaxTokens())
	}
	e.Expires = now.Add(a.GetAssignmentTimeToLive().AsDuration())
	return nil
}

// Meter compares what a fleet passes with the limit.
type Meter struct {
	Limit  float64 // requests a second
	Excess float64 // the most that passed above the limit in any time, in seconds of the limit

	balance, lowest     float64
	served, came, could float64
}

// Add adds a step of time. Its requests count for Use if used is set.
func (m *Meter) Add(passed, came float64, step time.Duration, used bool) {
	could := m.Limit * step.Seconds()
	m.balance += passed - could
	m.lowest = min(m.lowest, m.balance)
	m.Excess = max(m.Excess, (m.balance-m.lowest)/m.Limit)
	if used {
		m.served, m.came, m.could = m.served+passed, m.came+came, m.could+could
	}
}

// Use returns the part that passed of what came, or of the limit if more came.
func (m *Meter) Use() float64 { return m.served / min(m.came, m.could) }
