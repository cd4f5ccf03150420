package grpclimit

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// place asks the Shedder for a place for a call that the limits have admitted. Its error is the status of the call. The
// permit is zero if the Shedder failed and FailOpen admits the call.
func (s *server) place(ctx context.Context, class string, parts []gate.Part) (hybridlimit.Permit, error) {
	permit, res, err := s.cfg.Shedder.Acquire(ctx, class)
	switch {
	case err != nil:
		s.gate.Log.Failed(ctx, err, parts)
		if s.gate.Passes(ctx, err) {
			return hybridlimit.Permit{}, nil
		}
		s.gate.GiveBack(ctx, parts)
		return hybridlimit.Permit{}, refuse(ctx, err)
	case res.Allowed:
		return permit, nil
	}
	s.gate.GiveBack(ctx, parts)
	return hybridlimit.Permit{}, s.shed(ctx, res)
}

// shed returns the status of a call that the Shedder has shed. It is Unavailable, because the client has not exceeded a
// quota.
func (s *server) shed(ctx context.Context, res hybridlimit.Result) error {
	after := s.retryAfter(res.RetryAfter)
	pushBack(ctx, nil, after)
	return with(codes.Unavailable, "the server is overloaded", retryInfo(after)...)
}
