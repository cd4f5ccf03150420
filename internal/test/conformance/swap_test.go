package conformance_test

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/local"
)

// A program that changes the package of its limiter changes the line with New. The README says so.
type replaceable interface {
	hybridlimit.Limiter
	SetLimit(hybridlimit.Limit) error
	AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error)
	Ready(ctx context.Context) error
	Shutdown(ctx context.Context) error
	Close() error
}

var _ = []replaceable{(*local.Limiter)(nil), (*global.Limiter)(nil), (*hybrid.Limiter)(nil)}
