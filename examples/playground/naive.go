package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
)

// naive is the usual solution for a limit of a fleet. Each process has its own bucket. Every T it pushes its admitted
// units to Redis and takes over the level from there. Between two pushes each process admits all units that it saw
// last, so the fleet admits N times as many. Without Redis each process admits the whole limit.
//
// Its Redis side keeps debt, down to minus one burst. So its long-run rate holds while Redis answers: this is the best
// form of that limiter.
type naive struct {
	client *redis.Client
	key    string
	stop   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	limit   hybridlimit.Limit
	level   float64 // units
	at      time.Time
	pending int64 // units admitted and not yet sent
}

// newNaive starts the limiter of one process, with its own client.
func newNaive(client *redis.Client, key string, limit hybridlimit.Limit, every time.Duration) *naive {
	n := &naive{client: client, key: key, stop: make(chan struct{}), limit: limit, level: float64(limit.BurstSize()), at: time.Now()}
	n.done.Go(func() { n.run(every) })
	return n
}

func (n *naive) allow(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refill(now)
	if n.level < 1 {
		return false
	}
	n.level--
	n.pending++
	return true
}

// refill is called with n.mu held.
func (n *naive) refill(now time.Time) {
	if back := now.Sub(n.at); back > 0 {
		n.level += back.Seconds() * float64(n.limit.Rate) / n.limit.Period.Seconds()
		n.at = now
	}
	n.level = min(n.level, float64(n.limit.BurstSize()))
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

// push sends the admitted units to Redis. A push without an answer is repeated. If only the answer was lost, its units
// count twice.
func (n *naive) push() {
	n.mu.Lock()
	units, limit := n.pending, n.limit
	n.pending = 0
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
	if err != nil {
		n.pending += units
		return
	}
	n.level, n.at = level-float64(n.pending), time.Now()
}

// pushScript debits a token bucket unconditionally, down to a burst of debt.
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
level = math.max(level - ARGV[1], -ARGV[3])
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return string.format('%.6f', level)
`)

// close ends the limiter like a crash: units that were not pushed are never counted.
func (n *naive) close() {
	close(n.stop)
	n.done.Wait()
	n.client.Close()
}
