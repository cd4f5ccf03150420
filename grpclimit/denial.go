package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// pushback is the trailer by which a server sets the wait of gRPC's own retries, in milliseconds (gRFC A6). A negative
// value stops them.
const pushback = "grpc-retry-pushback-ms"

// deny returns the status of a call that a limit denied.
func (s *server) deny(ctx context.Context, parts []gate.Part, denied int, stream grpc.ServerStream) error {
	p := &parts[denied]
	after := s.retryAfter(p.Res.RetryAfter)
	details := retryInfo(after)
	pushBack(ctx, stream, after)
	s.denied(ctx, parts, denied, after)
	// The code is Unavailable if it is unknown whether the quota is exceeded. A denial by the fallback's share of the
	// limit is ResourceExhausted: the client is above that share.
	if p.Unavailable || p.Res.Source == hybridlimit.SourceTimeout {
		return with(codes.Unavailable, "the limit cannot be checked now", details...)
	}
	quota := &errdetails.QuotaFailure{}
	for i := range parts {
		if one := &parts[i]; one.Res.Source != hybridlimit.SourceUnknown && !one.Res.Allowed || i == denied {
			quota.Violations = append(quota.Violations, violation(one))
		}
	}
	return with(codes.ResourceExhausted, quota.Violations[0].Description, append(details, quota)...)
}

// violation describes a limit that denies. The subject is the policy and not the key, which may be a person's address.
func violation(p *gate.Part) *errdetails.QuotaFailure_Violation {
	name := p.PolicyName()
	text := fmt.Sprintf("the limit %q is exceeded", name)
	if p.Res.RetryAfter == hybridlimit.Never {
		text = fmt.Sprintf("the limit %q never admits such a call", name)
	}
	return &errdetails.QuotaFailure_Violation{Subject: name, QuotaId: name, Description: text}
}

// refuse returns the status of a call that no limit decided. It sets no pushback: the wait is unknown, and another
// server may be able to decide.
func (s *server) refuse(ctx context.Context, err error) error {
	s.refused(ctx)
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case gate.BadRequest(err):
		return with(codes.InvalidArgument, "the call has a key or a cost that cannot be counted")
	}
	return with(codes.Unavailable, "the limit cannot be checked now")
}

// refuseWithoutKey returns the status of a call without a key.
func (s *server) refuseWithoutKey(ctx context.Context, stream grpc.ServerStream) error {
	s.refused(ctx)
	setTrailer(ctx, stream, metadata.Pairs(pushback, "-1")) // the next attempt would have no key either
	code := s.cfg.NoKey.code()
	const text = "the call lacks the key that it is counted by"
	if code != codes.ResourceExhausted {
		return with(code, text)
	}
	return with(code, text, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Description: text}}})
}

// ended returns the status of a call whose context has ended, or ends before its place in a queue.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return with(codes.Canceled, "the call was cancelled before its limits admitted it")
	}
	return with(codes.DeadlineExceeded, "the deadline is before the time at which the limits admit the call")
}

// with returns the error of a status.
func with(code codes.Code, text string, details ...protoadapt.MessageV1) error {
	st := status.New(code, "grpclimit: "+text)
	if full, err := st.WithDetails(details...); err == nil { // it cannot fail: the details are messages of this file
		st = full
	}
	return st.Err()
}

// retryInfo returns the detail with the wait, or none if waiting does not help.
func retryInfo(after time.Duration) []protoadapt.MessageV1 {
	if after == hybridlimit.Never {
		return nil
	}
	return []protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}}
}

// retryAfter returns the wait that a denial names, with jitter, and at least 1 ms. Never stays Never.
func (s *server) retryAfter(after time.Duration) time.Duration {
	if after == hybridlimit.Never {
		return after
	}
	return max(time.Millisecond, gate.Longer(after, s.cfg.Jitter))
}

// pushBack sets the wait of gRPC's own retries. They stop if waiting does not help, or if the call's deadline is
// earlier: the client then has the denial at once, and not DeadlineExceeded after the wait.
func pushBack(ctx context.Context, stream grpc.ServerStream, after time.Duration) {
	ms := "-1"
	deadline, ok := ctx.Deadline()
	if after != hybridlimit.Never && (!ok || time.Until(deadline) > after) {
		n := int64(after / time.Millisecond)
		if after%time.Millisecond > 0 {
			n++
		}
		ms = strconv.FormatInt(n, 10)
	}
	setTrailer(ctx, stream, metadata.Pairs(pushback, ms))
}

// place asks the Shedder for a place for a call that the limits have admitted. Its error is the status of the call.
func (s *server) place(ctx context.Context, class string, parts []gate.Part) (hybridlimit.Permit, error) {
	permit, res, err := s.gate.Place(ctx, s.cfg.Shedder, class, parts)
	switch {
	case err != nil:
		return permit, s.refuse(ctx, err)
	case !res.Allowed:
		return permit, s.shed(ctx, res)
	}
	return permit, nil
}

// shed returns the status of a call that the Shedder has shed. It is Unavailable, because the client has not exceeded a
// quota.
func (s *server) shed(ctx context.Context, res hybridlimit.Result) error {
	after := s.retryAfter(res.RetryAfter)
	s.refused(ctx)
	pushBack(ctx, nil, after)
	return with(codes.Unavailable, "the server is overloaded", retryInfo(after)...)
}
