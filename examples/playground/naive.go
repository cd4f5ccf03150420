package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
)

// naive is what is mostly built where a fleet shares a limit: it counts
// locally and pushes the count to Redis each T. It admits while the level that
// it last saw, with the refill since and less what it has admitted and not seen
// counted, suffices. Nothing bounds what a fleet of them admits between two
// pushes, and without Redis each process takes the refill of the whole limit.
//
// Its Redis side keeps debt, so its long-run rate holds while Redis answers:
// this is that limiter at its best.
type naive struct {
	client *redis.Client
	key    string
	stop   chan struct{}
	done   sync.WaitGroup

	mu       sync.Mutex
	limit    hybridlimit.Limit
	level    float64 // units, as last seen
	seen     time.Time
	pending  int64 // units not sent
	inflight int64 // units sent and not seen counted
	pushes   int64
}

// newNaive starts a process of it on a client of its own.
func newNaive(client *redis.Client, key string, limit hybridlimit.Limit, every time.Duration) *naive {
	n := &naive{client: client, key: key, stop: make(chan struct{}), limit: limit, level: float64(limit.BurstSize()), seen: time.Now()}
	n.done.Go(func() { n.run(every) })
	return n
}

func (n *naive) allow(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	back := now.Sub(n.seen).Seconds() * float64(n.limit.Rate) / n.limit.Period.Seconds()
	level := min(n.level+max(back, 0), float64(n.limit.BurstSize()))
	if level-float64(n.pending+n.inflight) < 1 {
		return false
	}
	n.pending++
	return true
}

func (n *naive) setLimit(l hybridlimit.Limit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.limit = l
}

func (n *naive) run(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.push()
		case <-n.stop:
			return
		}
	}
}

// pushTimeout is hybrid.HubConfig.SyncTimeout's zero.
const pushTimeout = 250 * time.Millisecond

// push tells Redis. What is not answered is pushed again, and counted twice if
// it was the answer that got lost.
func (n *naive) push() {
	n.mu.Lock()
	units, limit := n.pending, n.limit
	if units > 0 {
		n.pending, n.inflight = 0, units
		n.pushes++
	}
	n.mu.Unlock()
	if units == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pushTimeout)
	defer cancel()
	level, err := pushScript.Run(ctx, n.client, []string{n.key}, units,
		float64(limit.Rate)/float64(limit.Period.Microseconds()), limit.BurstSize(), 2*limit.TimeToFull().Milliseconds()+1000).Float64()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inflight = 0
	if err != nil {
		n.pending += units
		return
	}
	n.level, n.seen = level, time.Now()
}

// pushScript debits a token bucket, whatever it holds.
//
// KEYS: bucket. ARGV: units, units per µs, burst, TTL in ms. Reply: units left,
// as text. State: a hash of level and at (µs of TIME).
var pushScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local s = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = tonumber(ARGV[3])
if s[1] then
  level = math.min(level, tonumber(s[1]) + math.max(0, now - tonumber(s[2])) * ARGV[2])
end
level = level - ARGV[1]
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return string.format('%.6f', level)
`)

func (n *naive) messages() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pushes
}

// close ends it as a crash would: what was not pushed is nobody's.
func (n *naive) close() {
	close(n.stop)
	n.done.Wait()
	n.client.Close()
}
