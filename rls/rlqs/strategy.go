package rlqs

import (
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// intervals are those of Envoy's bucket. It refills all the time, so that only their ratio to the tokens matters. Envoy
// does not see a change of the whole seconds of an interval: so they differ in the part below a second.
var intervals = [...]time.Duration{
	time.Second, 100*time.Second + 500*time.Millisecond, 10_000*time.Second + 250*time.Millisecond,
	1_000_000*time.Second + 750*time.Millisecond,
}

const (
	// exactFrom is the number of tokens from which an interval is exact enough.
	exactFrom = 100
	// leastTTL and mostTTL bound the time for which an assignment holds. It is two reports.
	leastTTL = 10 * time.Second
	mostTTL  = time.Minute
)

// tokensOf returns the size of the bucket of a rate, in tokens a second. Envoy begins with a full one.
func tokensOf(rate float64) float64 { return max(1, math.Floor(rate*bucketFor.Seconds())) }

// rateOf returns the strategy of slices of a limit, in requests a second.
func rateOf(slices int64, perSecond float64) *typev3.RateLimitStrategy {
	return bucketOf(float64(slices) * assigned * perSecond / allSlices)
}

// bucketOf returns the token bucket of a rate, in tokens a second. A rate below one token in the longest interval
// denies everything.
func bucketOf(rate float64) *typev3.RateLimitStrategy {
	for i, interval := range intervals {
		tokens := math.Floor(rate * interval.Seconds())
		if tokens < exactFrom && i < len(intervals)-1 {
			continue
		}
		if tokens < 1 {
			break
		}
		return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
			MaxTokens:     uint32(min(tokensOf(rate), math.MaxUint32)),
			TokensPerFill: wrapperspb.UInt32(uint32(min(tokens, math.MaxUint32))),
			FillInterval:  durationpb.New(interval),
		}}}
	}
	return blanket(typev3.RateLimitStrategy_DENY_ALL)
}

// blanket returns a strategy that allows or denies everything.
func blanket(rule typev3.RateLimitStrategy_BlanketRule) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}
}

// action returns the answer about a bucket.
func action(id *pb.BucketId, strategy *typev3.RateLimitStrategy, ttl time.Duration) *quotaAction {
	return &quotaAction{
		BucketId: id,
		BucketAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
				AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: strategy,
			},
		},
	}
}

// ttlOf returns the time for which an assignment holds, by the time between two reports.
func ttlOf(between time.Duration) time.Duration { return max(leastTTL, min(2*between, mostTTL)) }
