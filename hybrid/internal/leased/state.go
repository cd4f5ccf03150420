package leased

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// State is what a process knows of a key.
type State struct {
	Tag   int
	Limit hybridlimit.Limit
	Known bool    // the key is in memory
	Rate  float64 // leased, in units a second
	Held  float64 // units in hand
	Left  float64 // units in Redis, by its last answer and the time since
	Owed  int64   // units that the fallback has admitted and Redis does not know of
	Share float64 // units that the fallback has left

	live, away bool
}

// Look returns the state of a key. It changes nothing, and fails as Allow does.
func (l *Limiter) Look(key string) (State, error) {
	if err := l.control.Check(key, 1, l.MaxKeyBytes); err != nil {
		return State{}, err
	}
	plan, err := l.planOf(key)
	if err != nil {
		return State{}, err
	}
	k := State{Tag: l.tag(key), Limit: plan.Limit}
	if account.Static(plan.Limit) {
		return k, nil
	}
	s, now := l.shard(key), l.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.copied(l, key, k.Tag, plan)
	c := e.conditions()
	k.Known = known
	k.Rate, k.Held = e.Leased(now)
	k.Left, k.Owed, k.live, k.away = e.Level(&c.Terms, now), e.Owes(), e.Live(now), c.Away
	k.Share = l.Shares.Left(key, plan.Fallback(l.control.Fallback(), l.Floor, l.party.Size()).Size, now)
	return k, nil
}

// Explain returns the outcome of a call for one unit, "allow", "deny" or "ask", and the reason.
func (k *State) Explain(s control.Switch, own bool) (outcome, because string) {
	who := "the fleet"
	if own {
		who = "this process"
	}
	switch {
	case s == control.SwitchAllowAll:
		return "allow", "the switch of " + who + " is allow_all: no limit counts"
	case s == control.SwitchDenyAll:
		return "deny", "the switch of " + who + " is deny_all"
	case k.Limit.Algorithm == hybridlimit.AlgUnlimited:
		return "allow", "the limit is unlimited"
	case account.Static(k.Limit):
		return "deny", "the limit is blocked"
	case k.Held >= 1:
		return "allow", fmt.Sprintf("this process has %.1f units in hand, and a leased rate of %.4g a second", k.Held, k.Rate)
	case k.away && k.Share >= 1:
		return "allow", fmt.Sprintf("Redis does not answer, and the fallback has %.1f units left", k.Share)
	case k.away:
		return "deny", "Redis does not answer, and the fallback has no unit left"
	case !k.live:
		return "ask", "this process has no lease of the key"
	case k.Held+k.Left >= 1:
		return "ask", fmt.Sprintf("this process has %.1f units in hand, and Redis has %.1f; it may be denied, if this process has asked often", k.Held, k.Left)
	}
	return "deny", fmt.Sprintf("this process has %.1f units in hand, and a leased rate of %.4g a second; Redis has %.1f units left", k.Held, k.Rate, k.Left)
}
