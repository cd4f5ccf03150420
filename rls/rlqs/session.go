package rlqs

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

type (
	quotaUsage  = pb.RateLimitQuotaUsageReports_BucketQuotaUsage
	quotaAction = pb.RateLimitQuotaResponse_BucketAction
)

const (
	// maxBuckets is the largest number of buckets of a stream.
	maxBuckets = 10_000
	// together is the number of buckets of a report that are decided at the same time: their questions share messages.
	together = 64
)

// session is one stream: an Envoy. One goroutine uses it at a time, and decides about different buckets in others.
type session struct {
	service *Service
	domain  string
	buckets map[name]*bucket
}

// bucket is a bucket that an Envoy reports.
type bucket struct {
	assignment
	share   *share    // nil: nothing is counted
	expires time.Time // of the assignment
}

// answer returns the answer to a report.
func (one *session) answer(in *pb.RateLimitQuotaUsageReports, now time.Time) (*pb.RateLimitQuotaResponse, error) {
	if d := in.GetDomain(); one.domain == "" {
		if one.domain = d; d == "" {
			return nil, status.Error(codes.InvalidArgument, "rlqs: the first report must name a domain")
		}
	} else if d != "" && d != one.domain {
		return nil, status.Error(codes.InvalidArgument, "rlqs: the domain must not change in a stream")
	}
	usages := in.GetBucketQuotaUsages()
	buckets, err := one.bucketsOf(usages, now)
	if err != nil {
		return nil, err
	}
	actions, limited := make([]*quotaAction, len(usages)), make(chan struct{}, together)
	var all sync.WaitGroup
	for i, u := range usages {
		limited <- struct{}{}
		all.Go(func() {
			actions[i] = one.decide(buckets[i], u, now)
			<-limited
		})
	}
	all.Wait()
	actions = slices.DeleteFunc(actions, func(a *quotaAction) bool { return a == nil })
	return &pb.RateLimitQuotaResponse{BucketAction: actions}, nil
}

// bucketsOf returns the buckets of usages, in their order. If a usage is not valid, it returns an error, and the
// session is as before.
func (one *session) bucketsOf(usages []*quotaUsage, now time.Time) ([]*bucket, error) {
	names, seen := make([]name, len(usages)), make(map[name]bool, len(usages))
	for i, u := range usages {
		n, err := nameOf(u.GetBucketId().GetBucket())
		if err != nil {
			return nil, err
		}
		if t := u.GetTimeElapsed(); t != nil && (t.CheckValid() != nil || t.AsDuration() < 0) {
			return nil, status.Errorf(
				codes.InvalidArgument, "rlqs: time_elapsed must be 0 or more: %d s, %d ns", t.GetSeconds(), t.GetNanos(),
			)
		}
		if seen[n] {
			return nil, status.Error(codes.InvalidArgument, "rlqs: a report must name a bucket once")
		}
		names[i], seen[n] = n, true
	}
	if len(one.buckets)+len(seen) > maxBuckets {
		one.sweep(now)
	}
	fresh := 0
	for n := range seen {
		if one.buckets[n] == nil {
			fresh++
		}
	}
	if len(one.buckets)+fresh > maxBuckets {
		return nil, status.Errorf(codes.ResourceExhausted, "rlqs: a stream has at most %d buckets", maxBuckets)
	}
	all := make([]*bucket, len(usages))
	for i, n := range names {
		if one.buckets[n] == nil {
			one.buckets[n] = &bucket{}
		}
		all[i] = one.buckets[n]
	}
	return all, nil
}

// decide returns the answer about one bucket. Nil: there is none, because of an error, and Envoy goes on with what it
// has.
func (one *session) decide(b *bucket, u *quotaUsage, now time.Time) *quotaAction {
	ttl := ttlOf(u.GetTimeElapsed().AsDuration())
	b.expires = now.Add(ttl + heard) // Envoy's time begins when it hears of it
	strategy := one.strategy(b, u, now)
	if strategy == nil {
		return nil
	}
	return action(u.GetBucketId(), strategy, ttl)
}

// strategy returns the strategy of one bucket, or nil.
func (one *session) strategy(b *bucket, u *quotaUsage, now time.Time) *typev3.RateLimitStrategy {
	s := one.service
	m, known := s.rules.Rules().FindBucket(one.domain, u.GetBucketId().GetBucket())
	if !known {
		domain := slog.String("domain", fmt.Sprintf("%.100s", one.domain))
		s.warn(s.unknown, "rlqs: there are no rules for a domain, so all is allowed", domain)
	}
	switch r := m.Rule; {
	case r == nil || r.Unlimited || r.Shadow:
		b.forget()
		return blanket(typev3.RateLimitStrategy_ALLOW_ALL)
	case r.Limit.Algorithm == hybridlimit.AlgBlocked:
		b.forget()
		return blanket(typev3.RateLimitStrategy_DENY_ALL)
	}
	if b.share == nil || b.share.key != m.Key {
		b.forget()
		b.share = &share{fleet: s.fleet, key: m.Key}
	}
	limit := perSecondOf(m.Rule)
	told := b.report(b.share, usageOf(u), limit, now)
	err := b.share.err
	if b.share.err = nil; err != nil {
		s.warn(s.unanswered, "rlqs: a bucket keeps its assignment, or has none", slog.Any("error", err))
	}
	switch {
	case told > 0:
		return rateOf(told, limit)
	case err != nil:
		return nil
	default: // no slice is free yet
		return blanket(typev3.RateLimitStrategy_DENY_ALL)
	}
}

// forget gives the slices of the bucket back.
func (b *bucket) forget() {
	if b.share != nil {
		b.end(b.share)
		b.share.leave()
	}
	b.share = nil
}

// sweep forgets the buckets whose assignments have expired: Envoy does not use them any more.
func (one *session) sweep(now time.Time) {
	for name, b := range one.buckets {
		if now.After(b.expires) {
			b.forget()
			delete(one.buckets, name)
		}
	}
}

// end gives the slices back when the assignments have expired: Envoy uses them until then.
func (one *session) end() {
	last := time.Time{}
	for name, b := range one.buckets {
		if b.share == nil {
			delete(one.buckets, name)
			continue
		}
		b.share.leave()
		if b.expires.After(last) {
			last = b.expires
		}
	}
	if len(one.buckets) == 0 {
		one.service.streams.Done()
		return
	}
	go func() {
		defer one.service.streams.Done()
		t := time.NewTimer(time.Until(last))
		defer t.Stop()
		select {
		case <-t.C:
		case <-one.service.ctx.Done():
		}
		for _, b := range one.buckets {
			b.forget()
		}
	}()
}

// usageOf returns the usage of a report.
func usageOf(u *quotaUsage) usage {
	return usage{float64(u.GetNumRequestsAllowed()), float64(u.GetNumRequestsDenied()), u.GetTimeElapsed().AsDuration()}
}

// perSecondOf returns the rate of a rule with a limit, in requests a second.
func perSecondOf(r *rules.Rule) float64 {
	period := r.Limit.Period
	if period == 0 { // it begins by a calendar
		period = rules.Period(r.Unit)
	}
	return float64(r.Limit.Rate) / period.Seconds()
}
