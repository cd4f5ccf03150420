package ratesync_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// echo answers at once and keeps no state.
type echo struct{ answers [wire.MaxOps]wire.Answer }

func (e *echo) Batch(_ context.Context, _ wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	return wire.Reply{Answers: e.answers[:len(ops)]}, nil
}

// counted is an item that reports its Settle on a channel.
type counted struct {
	node    ratesync.Node
	settled chan<- struct{}
}

func (c *counted) Node() *ratesync.Node           { return &c.node }
func (*counted) Freeze(time.Time) (wire.Op, bool) { return wire.Op{Key: "k", Limit: limit}, true }
func (c *counted) Settle(ratesync.Answer)         { c.settled <- struct{}{} }
func (*counted) Uncertain(wire.Op)                {}
func (*counted) Drop()                            {}

// BenchmarkCycle measures the engine alone, from Enqueue to Settle, without Redis and the
// codec. One op costs the start of an idle lane and its goroutine. Many ops go in two
// batches: the first op, and the ops that gather meanwhile.
func BenchmarkCycle(b *testing.B) {
	for _, size := range []int{1, wire.MaxOps} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			br, err := circuit.New(breaker.Config{})
			if err != nil {
				b.Fatal(err)
			}
			e := ratesync.New(ratesync.Config{
				Caller: &echo{}, Names: lua.Names{Prefix: "hl", Tags: 1}, Process: "p", Timeout: time.Second,
				Breaker: func(int) *circuit.Breaker { return br },
			})
			defer e.Close()
			settled := make(chan struct{}, size)
			items := make([]counted, size)
			for i := range items {
				items[i].settled = settled
			}
			b.ReportAllocs()
			for b.Loop() {
				due := time.Now()
				for i := range items {
					e.Enqueue(0, &items[i], due)
				}
				for range items {
					<-settled
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/exchange")
		})
	}
}
