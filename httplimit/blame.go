package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/hybridlimit/hybridlimit"
)

// asked are the errors of a bad question: a key or a cost that no limiter takes.
var asked = [...]error{
	hybridlimit.ErrKeyTooLong, hybridlimit.ErrEmptyKey, hybridlimit.ErrCost, hybridlimit.ErrExceedsBurst,
}

// badRequest reports whether the request's key or cost caused an error.
func badRequest(err error) bool {
	for _, bad := range asked {
		if errors.Is(err, bad) {
			return true
		}
	}
	return false
}

// misconfigured reports whether an error is of the configuration that a key has
// met: a limit of LimitFor that the limiter refuses.
func misconfigured(err error) bool {
	return errors.Is(err, hybridlimit.ErrInvalid) || errors.Is(err, hybridlimit.ErrUnsupported)
}

// statusOf is the status of a request that a limiter failed with err.
func statusOf(err error) int {
	if badRequest(err) {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// passes reports whether a request goes on without a limit that failed with err.
// It names the errors of a limiter that can decide for no key. An error that it
// does not name may be one that a client causes at will, and so a way around the
// limit. A deadline of the request itself may be of the client's choice too.
func (g *gate) passes(ctx context.Context, err error) bool {
	if g.cfg.Failure != FailOpen || ctx.Err() != nil || badRequest(err) || misconfigured(err) {
		return false
	}
	if errors.Is(err, hybridlimit.ErrUnavailable) || errors.Is(err, hybridlimit.ErrClosed) {
		return true
	}
	_, bounded := ctx.Deadline()
	return !bounded && errors.Is(err, context.DeadlineExceeded)
}
