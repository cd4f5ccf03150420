package global

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/runner"
)

// breakers is one breaker for each server, as far as the limiter tells servers apart: one for a single Redis, and one
// for each tag of a Cluster or Ring.
type breakers []*circuit.Breaker

func newBreakers(calls *runner.Runner, cfg Config) (all breakers, err error) {
	count := cfg.Tags
	if calls.Together() {
		count = 1
	}
	for range count {
		b, err := circuit.New(cfg.Breaker)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// of returns the breaker of a tag.
func (b breakers) of(tag int) *circuit.Breaker { return b[tag%len(b)] }

// guarded runs a call to the server of a tag, unless its breaker is open.
func (l *Limiter) guarded(ctx context.Context, tag int, call func() error) error {
	begun, ok := l.breakers.of(tag).Begin()
	if !ok {
		return runner.ErrOpen
	}
	began := time.Now()
	err := call()
	took := time.Since(began)
	said := runner.Health(err, took, l.cfg.Timeout)
	if err != nil && ctx.Err() != nil {
		said = context.Canceled // the caller has gone: no evidence about Redis
	}
	begun.End(took, said)
	return err
}

// State returns the worst state of the limiter's breakers. While a breaker is open, decisions fail at once with
// ErrUnavailable and the decision of Config.FailOpen.
func (l *Limiter) State() breaker.State {
	worst := breaker.Closed
	for _, b := range l.breakers {
		worst = max(worst, b.State())
	}
	return worst
}
