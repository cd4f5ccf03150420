package global

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
)

// Inspect reads what Redis has of key, and takes nothing; its String says what
// a call for one unit would be told, and why. It costs three messages.
func (l *Limiter) Inspect(ctx context.Context, key string) (hybridlimit.KeyState, error) {
	t, err := l.of(key, 1)
	if err != nil {
		return hybridlimit.KeyState{}, err
	}
	_, name := l.place(key)
	bounded, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	k, err := l.runner.Look(bounded, name, t.limit)
	if err != nil {
		_, err = l.unavailable(ctx, hybridlimit.Result{}, 0, err)
		return hybridlimit.KeyState{}, err
	}
	return k, nil
}
