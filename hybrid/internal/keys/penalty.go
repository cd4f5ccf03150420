package keys

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
)

// Penalties counts the denials of keys, and says which key is to be paused. A nil *Penalties counts nothing.
type Penalties struct {
	After       int64
	Within, For time.Duration

	spared atomic.Bool // a key was not paused since the last heartbeat

	mu   sync.Mutex
	keys *simplelru.LRU[string, *denials]
}

// denials is the denials of one key in one period, which begins with the first of them.
type denials struct {
	began int64 // ns
	count int64
}

// mostPenalties bounds the keys whose denials are counted. The key that was denied the longest ago is forgotten.
const mostPenalties = 10_000

// penaltyWord is the longest life (ns) of a budget that denies, if denials are counted: they count when it is taken back.
const penaltyWord = 100e6

// NewPenalties returns the Penalties of a limiter with all its classes. after must be above 0.
func NewPenalties(after int64, within, lasts time.Duration) *Penalties {
	keys, err := simplelru.NewLRU[string, *denials](mostPenalties, nil)
	if err != nil {
		panic(err) // the size is above 0
	}
	return &Penalties{After: after, Within: within, For: lasts, keys: keys}
}

// count counts denials of a key, and reports whether they are too many.
func (p *Penalties) count(key string, n, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.keys.Get(key)
	switch {
	case !ok:
		d = &denials{began: now}
		p.keys.Add(key, d)
	case now-d.began >= int64(p.Within):
		*d = denials{began: now}
	}
	if d.count += n; d.count < p.After {
		return false
	}
	p.keys.Remove(key)
	return true
}

// tooMany counts n denials of a key by the limit, and reports whether the key is to be paused. It may be called with an
// entry locked.
func (t *Terms) tooMany(key string, n, now int64) bool {
	return t.Penalties != nil && n > 0 && !t.Control.Shadow.Load() && t.PausedFor(key, now) <= 0 && t.Penalties.count(key, n, now)
}

// Pause pauses a key for a time (ns), and reports whether it did: the process may know too many pauses. It may be called
// with an entry locked.
func (t *Terms) Pause(key string, left int64) bool {
	if !t.Paused.Tell(t.mark(key), t.Clock.Now()+left) {
		return false
	}
	t.Pace.Event(0) // an idle process of a large fleet tells it at once too
	t.Clock.Void()
	return true
}

// punish pauses a key whose calls were denied too often. It may be called with an entry locked, so that a heartbeat logs
// that it could not.
func (t *Terms) punish(key string) {
	if !t.Pause(key, int64(t.Penalties.For)) {
		t.Penalties.spared.Store(true)
	}
}

// punishes reports whether a denial counts for a penalty: the limit has denied the call.
func punishes(res *hybridlimit.Result) bool {
	switch res.Source {
	case hybridlimit.SourceRedis, hybridlimit.SourceDenyCache, hybridlimit.SourceFallback:
		return !res.Allowed
	}
	return false
}
