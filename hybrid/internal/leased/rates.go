// Package leased admits calls from leased rates: the keys of each limiter (limiter.go, entry.go), the calls that wait for
// an answer (wait.go), and the messages of a process (lane.go). internal/ratelease has the protocol, and
// docs/decisions/0084-rate-leases.md the reasons.
package leased

import (
	"context"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// Env is what leased rates need of their hub.
type Env struct {
	Context context.Context // ends with Close
	Clock   *clock.Clock
	Log     *tell.Log
	Names   lua.Names
	Runner  *runner.Runner
	Engine  *ratesync.Engine
	Breaker func(tag int) *circuit.Breaker
	Broken  func(tag int) bool // Redis does not answer
	Event   func()             // a call came: see member.Pace.Event
	Begin   func() bool        // counts a goroutine; false: the hub is closed
	End     func()             // of a goroutine that Begin has counted
	Name    func() string      // a new identity
}

// Rates is what the limiters of a hub share. The locks of a lane and of a shard are never held together, and none is
// held across a message.
type Rates struct {
	env     Env
	lanes   []lane // one for each tag
	number  atomic.Int64
	process atomic.Pointer[string] // the identity

	Messages atomic.Uint64
	Ops      atomic.Uint64
	Failed   atomic.Uint64 // messages without an answer
	Renames  atomic.Uint64 // identities given up, because another process used them
}

// New returns the rates of a hub.
func New(env Env) *Rates {
	r := &Rates{env: env, lanes: make([]lane, env.Names.Tags)}
	for tag := range r.lanes {
		r.lanes[tag] = lane{rates: r, tag: tag}
	}
	r.rename()
	return r
}

// rename gives the process another identity. The leases of the old one end by themselves.
func (r *Rates) rename() {
	id := r.env.Name()
	r.process.Store(&id)
}
