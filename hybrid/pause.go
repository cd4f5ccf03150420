package hybrid

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Penalty is a penalty box: a key that one process denies After times within Within is denied by all processes for For,
// whatever the limit has. The fleet hears of it with the next heartbeats, within about a second. Denials in this time do
// not count, so a penalty ends when it says. Result.Source is SourcePause.
//
// Denials by the limit count: of Redis, from memory, and of the fallback. Those of Blocked, of a cost above the burst, of
// a switch, and of a limit in shadow do not. A process counts 10 000 keys at most. A penalty on a name that a client can
// choose, such as that of an account, lets the client lock out its owner: take the address.
type Penalty struct {
	After  int64         // denials. Zero: no penalty
	Within time.Duration // from the first of them. Above 0, if After is
	For    time.Duration // above 0, if After is; at most 10 min
}

// check adds what is wrong with a penalty.
func (p Penalty) check(bad *adapter.Violations) {
	bad.AddIf(p.After < 0, "Config.Penalty.After", p.After, "must not be negative")
	bad.AddIf(p.After == 0 && (p.Within != 0 || p.For != 0), "Config.Penalty.After", p.After, "must be above 0 with Within or For")
	bad.AddIf(p.After > 0 && p.Within <= 0, "Config.Penalty.Within", p.Within, "must be above 0")
	bad.AddIf(p.After > 0 && p.For <= 0, "Config.Penalty.For", p.For, "must be above 0")
	bad.AddIf(p.For > news.LongestPause, "Config.Penalty.For", p.For, fmt.Sprintf("must be at most %v", news.LongestPause))
}

func init() { news.Register(func(l *Limiter) news.Teller { return (*giver)(l) }) }

// Pause implements news.Teller. The process knows the pause at once, and the others with the next heartbeats.
func (g *giver) Pause(_ context.Context, key string, left time.Duration) error {
	l := (*Limiter)(g)
	if err := l.control.Check(key, 1, l.maxKey); err != nil {
		return err
	}
	if !l.terms.Pause(key, int64(left)) {
		return fmt.Errorf("hybrid: %w: %d keys are paused already", ErrFleetKeysFull, member.MostPaused)
	}
	return nil
}
