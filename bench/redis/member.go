package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hybridlimit/hybridlimit"
)

// memberEnv in the environment makes this program a member of a fleet.
const memberEnv = "HYBRIDLIMIT_BENCH_MEMBER"

// membership tells a member its place in the fleet. It is the first line of its input.
type membership struct {
	Kind   string
	Addr   string // of Redis
	Number int    // from 0
	Of     int    // members
	Keys   int
	Limit  hybridlimit.Limit
	Zipf   bool
	Two    bool
}

// order is one turn of a member. Each order and each answer is a line of JSON.
type order struct {
	Turn      uint64
	PerSecond float64       // calls a second of this member
	Lasts     time.Duration // of the calls
	Settle    time.Duration // after the last call
}

// turned is the answer to an order. That to a membership has only Err.
type turned struct {
	Calls, Denied, Fails     int64
	Alone                    int64         // decisions without Redis, by the fallback
	CPU                      time.Duration // of the process
	Messages, Sent, Received int64         // Sent and Received are bytes
	Took                     []byte        // histogram of the ns of a call, encoded
	Err                      string
}

// member is one process of a fleet.
type member struct {
	membership
	target
	wire  *wire
	names []string
}

// isMember runs this process as a member, and exits, if it was started as one.
func isMember() {
	if os.Getenv(memberEnv) == "" {
		return
	}
	hush()
	if err := memberMain(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// memberMain obeys orders until its input ends, which ends a turn as well. The input ends when the parent closes it or
// dies. The limiter is not closed: its Redis may be gone.
func memberMain(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dec, enc := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var place membership
	if err := dec.Decode(&place); err != nil {
		return err
	}
	orders, broken := make(chan order), make(chan error, 1)
	go func() {
		defer cancel()
		for {
			var o order
			if err := dec.Decode(&o); err != nil {
				if !errors.Is(err, io.EOF) {
					broken <- err
				}
				return
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	m, err := join(ctx, place)
	if ctx.Err() == nil {
		if err := enc.Encode(turned{Err: text(err)}); err != nil {
			return err
		}
	}
	for {
		select {
		case o := <-orders:
			r, err := m.turn(ctx, o)
			if ctx.Err() != nil {
				continue
			}
			r.Err = text(err)
			if err := enc.Encode(r); err != nil {
				return err
			}
		case <-ctx.Done():
			select {
			case err := <-broken:
				return err
			default:
				return nil
			}
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// join opens the limiter, and waits until it knows its whole fleet.
func join(ctx context.Context, place membership) (*member, error) {
	m := &member{membership: place, wire: new(wire), names: make([]string, place.Keys)}
	for i := range m.names {
		m.names[i] = fmt.Sprintf("customer-%08d", i)
	}
	for _, k := range modeKinds {
		if k.name != place.Kind {
			continue
		}
		var err error
		if m.target, err = k.make(ctx, reach(place.Addr), m.wire, place.Limit); err != nil || m.stats == nil {
			return m, err
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		for m.stats().Fleet != int64(place.Of) {
			select {
			case <-ctx.Done():
				return m, fmt.Errorf("a fleet of %d, want %d: %w", m.stats().Fleet, place.Of, ctx.Err())
			case <-time.After(50 * time.Millisecond):
			}
		}
		return m, nil
	}
	return m, fmt.Errorf("there is no limiter %q for a fleet", place.Kind)
}

// turn makes random calls. A call begins at its time even if earlier calls have not returned. Keys and times depend
// only on the turn and the member, so all kinds of fleets get the same.
func (m *member) turn(ctx context.Context, o order) (r turned, err error) {
	cpu, err := ownCPU()
	if err != nil {
		return r, err
	}
	wired, alone := m.wire.traffic(), m.alone()
	var mu sync.Mutex // guards r and took
	took := newHistogram()
	rng := rand.New(rand.NewPCG(o.Turn, uint64(m.Number)))
	draw := func() int { return rng.IntN(len(m.names)) }
	if m.Zipf {
		zipf := rand.NewZipf(rng, zipfSkew, 1, uint64(len(m.names)-1))
		draw = func() int { return int(zipf.Uint64()) }
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var calls sync.WaitGroup
	begin := time.Now()
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() / o.PerSecond * float64(time.Second))
		key := draw()
		last := at >= o.Lasts
		if last {
			at = o.Lasts
		}
		timer.Reset(time.Until(begin.Add(at)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return r, ctx.Err()
		}
		if last {
			break
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
	calls.Wait()
	select {
	case <-time.After(o.Settle):
	case <-ctx.Done():
		return r, ctx.Err()
	}
	after, err := ownCPU()
	if err != nil {
		return r, err
	}
	went := m.wire.traffic().since(wired)
	r.CPU, r.Alone = after-cpu, m.alone()-alone
	r.Messages, r.Sent, r.Received = went.messages, went.sent, went.received
	r.Took, err = took.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return r, err
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

// alone returns the number of decisions without Redis so far.
func (m *member) alone() int64 {
	if m.stats == nil {
		return 0
	}
	s := m.stats()
	return s.Allowed[hybridlimit.SourceFallback] + s.Denied[hybridlimit.SourceFallback]
}
