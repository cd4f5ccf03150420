package circuit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Class is the meaning of a call's error for the health of Redis.
type Class uint8

// The classes.
const (
	// Success: Redis executed the call.
	Success Class = iota
	// Failure: Redis did not answer, or answered that it cannot serve.
	Failure
	// Ignored: the result does not show whether Redis can serve.
	Ignored

	classes // the number of classes
)

var classNames = [classes]string{"success", "failure", "ignored"}

// String returns "success", "failure" or "ignored".
func (c Class) String() string {
	if c < classes {
		return classNames[c]
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// ignored has the error replies of a healthy Redis: it needs the script, another node or a retry. Every other error
// reply is a failure. The opposite, a list of failures, would grow with each version of each server that speaks the
// protocol. A missing entry would make the limiter wait for a Redis that cannot serve.
var ignored = [...]string{
	"NOSCRIPT ",
	"Function not found", // the NOSCRIPT of FCALL, sent as "ERR Function not found"
	"MOVED ",
	"ASK ",
	"TRYAGAIN ",
}

// Classify returns the class of an error from go-redis, wrapped or not:
//
//   - nil and redis.Nil: Success.
//   - NOSCRIPT, "Function not found", MOVED, ASK, TRYAGAIN: Ignored. Redis is
//     healthy and asks the client for another step.
//   - context.Canceled: Ignored. The caller left before the result was known.
//   - every other error: Failure. Examples: context.DeadlineExceeded, a network
//     error, EOF, a pool without a free connection, LOADING, READONLY,
//     MASTERDOWN, CLUSTERDOWN, OOM, BUSY, MISCONF, NOREPLICAS, NOAUTH,
//     WRONGPASS, NOPERM, too many clients, and every unknown error.
//
// If an error wraps several, a deadline decides first, then a cancellation,
// then the first error that is a reply of Redis.
//
// Classify does not see durations: a slow success is a Success here and a failure to [Call.End].
func Classify(err error) Class {
	if err == nil {
		return Success
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Failure
	}
	// A cancelled dial is a *net.OpError that wraps context.Canceled, so this comes before the rest.
	if errors.Is(err, context.Canceled) {
		return Ignored
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return Failure
	}
	if reply == redis.Nil {
		return Success
	}
	// By text: go-redis has no types for NOSCRIPT and functions. Redis sends
	// "ERR " before its text for functions, KVRocks before every code.
	text := strings.TrimPrefix(reply.Error(), "ERR ")
	for _, prefix := range ignored {
		if strings.HasPrefix(text, prefix) {
			return Ignored
		}
	}
	return Failure
}
