// Package moves is for package region, which moves units of a key from one Redis to another. Packages hybrid and global
// give it what their limiters have no method for.
package moves

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
)

// Home is what a hub has in common with the limiters of other regions.
type Home struct {
	Client    redis.UniversalClient // that the hub was made with
	Prefix    string                // of HubConfig
	Tags      int                   // of HubConfig
	HashKeys  hybridlimit.Secret    // of HubConfig
	Functions bool                  // of HubConfig
	Logger    *slog.Logger          // of HubConfig
	Meters    metric.MeterProvider  // of HubConfig; nil: none
}

// Receiver takes units that were taken elsewhere.
type Receiver interface {
	// Give adds n units of key, of which Redis is told once and as soon as possible. at is for Landed. counts is false if
	// a switch makes the limiter count nothing. With an error, Redis may be told or not.
	Give(ctx context.Context, key string, n int64) (at int64, counts bool, err error)
	// Landed reports whether Redis knows of all units of key that were given up to at, or never will.
	Landed(key string, at int64) bool
	// Left returns the units that this process thinks are left of key, or are in debt (negative); 0: it does not know.
	Left(key string) int64
	// Fleet returns N.
	Fleet() int64
}

// Donor gives units of a key away.
type Donor interface {
	// TakeAbove takes up to n units of key, and leaves floor units. left is the number of units above floor afterwards.
	TakeAbove(ctx context.Context, key string, n, floor int64) (taken, left int64, err error)
}

// The functions are set while packages are initialised: the first two by hybrid, the third by global. They panic for
// another type.
var (
	HomeOf     func(hub any) Home
	ReceiverOf func(hybridlimit.Limiter) Receiver
	DonorOf    func(hybridlimit.Limiter) Donor
)
