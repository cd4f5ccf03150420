package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// memberEnv in the environment makes this program a member of a fleet.
const memberEnv = "HYBRIDLIMIT_BENCH_MEMBER"

// membership tells a member its place in the fleet.
type membership struct {
	Kind   string
	Addr   string // of Redis
	Number int    // from 0
	Of     int    // processes of the fleet
	Keys   int
	Limit  hybridlimit.Limit
	Zipf   bool
	Two    bool
	Hubs   int // of this member
}

// order is one turn of a member. The first order has the membership instead.
type order struct {
	Join      *membership
	Turn      uint64
	PerSecond float64       // calls a second of this member
	Lasts     time.Duration // of the calls
	Settle    time.Duration // after the last call
}

// turned is the answer to an order.
type turned struct {
	Calls, Denied, Fails int64
	Alone                int64          // decisions without Redis, by the fallback
	Ops                  int64          // exchanges with Redis
	Spent                benchkit.Spent // by the process, without the CPU time of Redis
	Took                 []byte         // histogram of the ns of a call, encoded
}

// member is one process of a fleet.
type member struct {
	membership
	target
	wire  *benchkit.Wire
	names []string
}

// isMember runs this process as a member, and exits, if it was started as one.
func isMember() {
	if os.Getenv(memberEnv) == "" {
		return
	}
	hush()
	benchkit.Main("redis", func(ctx context.Context) error { return memberMain(ctx, os.Stdin, os.Stdout) })
	os.Exit(0)
}

// memberMain obeys orders until its input ends, which ends a turn as well. The limiter is not closed: its Redis may be
// gone.
func memberMain(ctx context.Context, in io.Reader, out io.Writer) error {
	m := &member{}
	return benchkit.Serve(ctx, in, out, func(ctx context.Context, o order) (reply any, err error) {
		if o.Join != nil {
			m, err = join(ctx, *o.Join)
			return nil, err
		}
		return m.turn(ctx, o)
	})
}

// join opens the limiter, and waits until it knows its whole fleet.
func join(ctx context.Context, place membership) (*member, error) {
	m := &member{membership: place, wire: new(benchkit.Wire), names: make([]string, place.Keys)}
	for i := range m.names {
		m.names[i] = fmt.Sprintf("customer-%08d", i)
	}
	kinds := kindsOf(place.Kind)
	if len(kinds) != 1 {
		return m, fmt.Errorf("there is no limiter %q for a fleet", place.Kind)
	}
	var err error
	if m.target, err = several(ctx, place.Hubs, kinds[0].make, place.Addr, m.wire, place.Limit); err != nil || m.stats == nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for m.stats().Fleet != int64(place.Of) {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return m, fmt.Errorf("a fleet of %d, want %d: %w", m.stats().Fleet, place.Of, err)
		}
	}
	return m, nil
}

// turn makes random calls. A call begins at its time even if earlier calls have not returned. Keys and times depend
// only on the turn and the member, so all kinds of fleets get the same.
func (m *member) turn(ctx context.Context, o order) (r turned, err error) {
	alone, ops, took := m.alone(), m.ops(), newHistogram()
	if r.Spent, err = (benchkit.Meter{Wire: m.wire}).Spent(ctx, func() error {
		if err := m.calls(ctx, o, &r, took); err != nil {
			return err
		}
		return pause(ctx, o.Settle)
	}); err != nil {
		return r, err
	}
	r.Alone, r.Ops = m.alone()-alone, m.ops()-ops
	r.Took, err = took.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return r, err
}

// calls makes the calls of a turn, and waits for their end.
func (m *member) calls(ctx context.Context, o order, r *turned, took *hdrhistogram.Histogram) error {
	var mu sync.Mutex // guards r and took
	rng := rand.New(rand.NewPCG(o.Turn, uint64(m.Number)))
	draw := func() int { return rng.IntN(len(m.names)) }
	if m.Zipf {
		zipf := rand.NewZipf(rng, zipfSkew, 1, uint64(len(m.names)-1))
		draw = func() int { return int(zipf.Uint64()) }
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	begin := time.Now()
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() / o.PerSecond * float64(time.Second))
		key := draw()
		if err := pause(ctx, time.Until(begin.Add(min(at, o.Lasts)))); err != nil || at >= o.Lasts {
			return err
		}
		calls.Go(func() {
			from := time.Now()
			allowed, err := m.call(ctx, key)
			took1 := time.Since(from)
			mu.Lock()
			defer mu.Unlock()
			took.RecordValue(int64(took1))
			r.Calls++
			switch {
			case err != nil:
				r.Fails++
			case !allowed:
				r.Denied++
			}
		})
	}
}

// pause waits for a while.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tenants is the number of tenants, to which the keys belong in turn. The limit of each is tenantFactor times that of a
// key.
const tenants, tenantFactor = 100, 100

// call makes a call for a key, and for its tenant if calls have two limits.
func (m *member) call(ctx context.Context, key int) (allowed bool, err error) {
	if !m.Two {
		return m.allow(ctx, m.names[key])
	}
	return m.both(ctx, m.names[key], m.names[key%tenants])
}

// ops returns the number of exchanges with Redis so far.
func (m *member) ops() int64 {
	if m.stats == nil {
		return 0
	}
	return m.stats().Ops
}

// alone returns the number of decisions without Redis so far.
func (m *member) alone() int64 {
	if m.stats == nil {
		return 0
	}
	s := m.stats()
	return s.Allowed[hybridlimit.SourceFallback] + s.Denied[hybridlimit.SourceFallback]
}
