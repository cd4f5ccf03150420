package rivals

import (
	"context"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
)

const xtimeModule = "golang.org/x/time"

// xtimeRate is the common case in Go: one limiter without keys.
var xtimeRate = Rival{
	Name: "x-time-rate", Module: xtimeModule, What: "rate.Limiter.Allow", Single: true,
	Open: func(env Env) (Limiter, error) { return xtime{newRate(env.Limit)}, nil },
}

func newRate(l hybridlimit.Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond(l)), int(l.BurstSize()))
}

type xtime struct{ l *rate.Limiter }

func (x xtime) Decide(_ context.Context, keys []string) (allowed int, err error) {
	for range keys {
		if x.l.Allow() {
			allowed++
		}
	}
	return allowed, nil
}

func (xtime) Close() error { return nil }

// xtimeSyncMap is the usual way to add keys. Keys are never removed.
var xtimeSyncMap = Rival{
	Name: "x-time-rate_sync.Map", Module: xtimeModule, What: "sync.Map.Load, rate.Limiter.Allow",
	Open: func(env Env) (Limiter, error) { return &xtimeMap{limit: env.Limit}, nil },
}

type xtimeMap struct {
	limit hybridlimit.Limit
	m     sync.Map
}

func (x *xtimeMap) Decide(_ context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		v, ok := x.m.Load(key)
		if !ok {
			v, _ = x.m.LoadOrStore(key, newRate(x.limit))
		}
		if v.(*rate.Limiter).Allow() {
			allowed++
		}
	}
	return allowed, nil
}

func (*xtimeMap) Close() error { return nil }

// xtimeLRU also adds keys, and bounds their number.
var xtimeLRU = Rival{
	Name: "x-time-rate_golang-lru", Module: "github.com/hashicorp/golang-lru/v2", What: "lru.Cache.Get, rate.Limiter.Allow", Bounded: true,
	Open: func(env Env) (Limiter, error) {
		c, err := lru.New[string, *rate.Limiter](env.Keys)
		return &xtimeCache{env.Limit, c}, err
	},
}

type xtimeCache struct {
	limit hybridlimit.Limit
	c     *lru.Cache[string, *rate.Limiter]
}

func (x *xtimeCache) Decide(_ context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		l, ok := x.c.Get(key)
		if !ok {
			l = newRate(x.limit)
			if was, ok, _ := x.c.PeekOrAdd(key, l); ok {
				l = was
			}
		}
		if l.Allow() {
			allowed++
		}
	}
	return allowed, nil
}

func (*xtimeCache) Close() error { return nil }
