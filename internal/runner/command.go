package runner

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/lua"
)

// once sends one command. Call it only between Begin and Done.
func (r *Runner) once(ctx context.Context, verb, script string, keys []string, argv []any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cmd := newCommand(ctx, verb, script, keys, argv)
	if err := r.do(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// newCommand returns the command that runs a script or a function.
func newCommand(ctx context.Context, verb, script string, keys []string, argv []any) onceCmd {
	var args []any
	if m, ok := ctx.(*message); ok && m.args[0] == nil {
		args = m.args[:0]
	}
	args = slices.Grow(args, 3+len(keys)+len(argv))
	args = append(args, word(verb), word(script), len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	cmd := onceCmd{redis.NewCmd(ctx, append(args, argv...)...)}
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3) // go-redis need not look for it
	}
	return cmd
}

// here is the key of a context of Here.
type here struct{}

// Here returns a context whose calls may run on the goroutine of their caller, which saves a goroutine for each. A call
// then returns at ctx's deadline, at the latest, and may not return when ctx is cancelled.
func Here(ctx context.Context) context.Context { return context.WithValue(ctx, here{}, true) }

// do runs a command. If ctx is a message, or one of Here, it runs on this goroutine. Otherwise do returns when ctx
// ends, at the latest.
func (r *Runner) do(ctx context.Context, cmd redis.Cmder) (err error) {
	sends := r.sends.Load()
	send := sends.loose
	m, ok := ctx.(*message)
	switch {
	case ok && m.strict, !ok && sends.strict != nil && ctx.Value(here{}) != nil:
		send = sends.strict
	case !ok:
		return r.within(ctx, func() error {
			_ = send(ctx, cmd) // the error is in cmd
			return cmd.Err()
		})
	}
	defer r.dials.blame(time.Now(), &err)
	return ended(ctx, r.panics.catch(func() error {
		_ = send(ctx, cmd)
		return cmd.Err()
	}))
}

// onceCmd is a command that go-redis does not send again.
type onceCmd struct{ *redis.Cmd }

// NoRetry stops go-redis from repeating a call whose reply was lost.
func (onceCmd) NoRetry() bool { return true }

// words has the arguments that do not change, so that a call need not allocate them.
var words = func() map[string]any {
	all := map[string]any{}
	for _, text := range []string{"evalsha", "eval", "fcall", lua.Batch.SHA, lua.Library.Batch} {
		all[text] = text
	}
	return all
}()

func word(text string) any {
	if w, ok := words[text]; ok {
		return w
	}
	return text
}

// boxed returns texts as arguments.
func boxed(texts []string) []any {
	args := make([]any, len(texts))
	for i, t := range texts {
		args[i] = t
	}
	return args
}
