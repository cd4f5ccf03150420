package circuit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Class is what the error of a call says about the health of a Redis.
type Class uint8

// The classes.
const (
	// Success: Redis did what was asked.
	Success Class = iota
	// Failure: Redis did not answer, or answered that it cannot serve.
	Failure
	// Ignored: nothing was learned about whether Redis can serve.
	Ignored

	classes // how many there are
)

var classNames = [classes]string{"success", "failure", "ignored"}

// String is "success", "failure" or "ignored".
func (c Class) String() string {
	if c < classes {
		return classNames[c]
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// Replies of a Redis that is well: it asks for the script, for another node,
// or for another moment. Everything else that Redis says is a failure: a list
// of failures would have to grow with every version of every server that
// speaks the protocol, and an unknown error that does not count is a limiter
// that waits for a Redis which cannot serve.
var ignored = [...]string{
	"NOSCRIPT ",
	"Function not found", // NOSCRIPT's sibling for FCALL; sent as "ERR Function not found"
	"MOVED ",
	"ASK ",
	"TRYAGAIN ",
}

// Classify says what an error from go-redis, wrapped or not, means for a
// breaker:
//
//   - nil and redis.Nil: Success.
//   - NOSCRIPT and its like for functions, MOVED, ASK, TRYAGAIN: Ignored.
//     Redis is well and wants something of the client.
//   - context.Canceled: Ignored. The caller went away; nobody knows.
//   - everything else: Failure. A context.DeadlineExceeded, a network error,
//     EOF, a pool without a free connection, LOADING, READONLY, MASTERDOWN,
//     CLUSTERDOWN, OOM, BUSY, MISCONF, NOREPLICAS, NOAUTH, WRONGPASS, NOPERM,
//     too many clients, and what nobody has heard of yet.
//
// Of an error that wraps several, a deadline decides first, then a
// cancellation, then the first error that is a reply of Redis.
//
// It knows nothing of time: a slow success is a Success here and a failure to
// [Call.End].
func Classify(err error) Class {
	if err == nil {
		return Success
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Failure
	}
	// Asked before anything about the network: a dial that was cancelled is a
	// *net.OpError too, and matches.
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
	// By text and not by go-redis's types, which know neither NOSCRIPT nor
	// functions. The "ERR " is Redis's own for functions, and KVRocks puts it
	// before every code.
	text := strings.TrimPrefix(reply.Error(), "ERR ")
	for _, prefix := range ignored {
		if strings.HasPrefix(text, prefix) {
			return Ignored
		}
	}
	return Failure
}
