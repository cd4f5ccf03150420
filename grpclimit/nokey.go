package grpclimit

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// NoKey is the answer to a call without a key. A call has no key if every Limit.Key returns "", or if the Key of a
// Required limit does. NoKey is NoKeyDeny, NoKeyPass, or a code other than OK:
//
//	grpclimit.Config{NoKey: grpclimit.NoKey(codes.Unauthenticated)}
type NoKey uint32

// The answers other than a code.
const (
	// NoKeyDeny answers ResourceExhausted with QuotaFailure, and asks gRPC's retries to stop. It is the zero value
	// because a client can often leave out its key; if such a call were admitted, the client would have no limit.
	NoKeyDeny NoKey = 0
	// NoKeyPass passes the call to the handler without a limit. It is for keys that a client cannot leave out. It
	// contradicts a Required limit, so UnaryServer and StreamServer return an error for both.
	NoKeyPass NoKey = 1 << 16
)

// String returns "deny", "pass" or the code.
func (k NoKey) String() string {
	switch k {
	case NoKeyDeny:
		return "deny"
	case NoKeyPass:
		return "pass"
	}
	return codes.Code(k).String()
}

// valid reports whether k is NoKeyDeny, NoKeyPass, or a code other than OK.
func (k NoKey) valid() bool {
	return k == NoKeyDeny || k == NoKeyPass || codes.Code(k) <= codes.Unauthenticated
}

// code returns the code of an answer other than NoKeyPass.
func (k NoKey) code() codes.Code {
	if k == NoKeyDeny {
		return codes.ResourceExhausted
	}
	return codes.Code(k)
}

// The failures of calls for which no limiter was asked.
var (
	errNoLimit = errors.New("grpclimit: no limit applies to the call")
	errNoKey   = errors.New("grpclimit: a required limit has no key for the call")
)

// withoutKey answers a call without a key according to Config.NoKey. Nil: the call passes.
func (s *server) withoutKey(ctx context.Context, c Call, stream grpc.ServerStream, err error) error {
	level := slog.LevelWarn
	if s.cfg.NoKey == NoKeyPass {
		level = slog.LevelDebug // the Config asks for such calls to be admitted
	}
	s.gate.Log.NoKey(ctx, level, "err", err, "method", gate.Shortened(c.Method), "answer", s.cfg.NoKey.String(),
		"remedy", "exempt the call in Config.Skip, return a key for it in Limit.Key, or set Config.NoKey")
	if s.cfg.NoKey == NoKeyPass {
		return nil
	}
	return s.refuseWithoutKey(ctx, stream)
}
