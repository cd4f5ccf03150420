package gate

import (
	"context"
	"errors"

	"github.com/hybridlimit/hybridlimit"
)

// requestErrors are the errors that an invalid key or cost causes.
var requestErrors = [...]error{
	hybridlimit.ErrKeyTooLong, hybridlimit.ErrEmptyKey, hybridlimit.ErrCost, hybridlimit.ErrExceedsBurst,
}

// BadRequest reports whether the request's key or cost caused the error.
func BadRequest(err error) bool {
	for _, bad := range requestErrors {
		if errors.Is(err, bad) {
			return true
		}
	}
	return false
}

// misconfigured reports whether LimitFor returned a limit for the key that the limiter rejects.
func misconfigured(err error) bool {
	return errors.Is(err, hybridlimit.ErrInvalid) || errors.Is(err, hybridlimit.ErrUnsupported)
}

// Passes reports whether a request is admitted although a limiter returned err. It lists the errors of a limiter that
// cannot decide for any key. A client may be able to cause any other error, and could so evade the limit. A client may
// also choose the deadline of its own request.
func (g *Gate) Passes(ctx context.Context, err error) bool {
	if !g.failOpen || ctx.Err() != nil || BadRequest(err) || misconfigured(err) {
		return false
	}
	if errors.Is(err, hybridlimit.ErrUnavailable) || errors.Is(err, hybridlimit.ErrClosed) {
		return true
	}
	_, bounded := ctx.Deadline()
	return !bounded && errors.Is(err, context.DeadlineExceeded)
}
