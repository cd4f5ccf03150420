package global

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
)

// Inspect reads the state of key in Redis and takes nothing. The String of the KeyState is the answer that a call for
// one unit would get, with the reason. Inspect costs three messages.
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
