package spend_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hybridlimit/hybridlimit/spend"
)

// ending is how a drawn call ends.
type ending int

const (
	settled ending = iota
	panicked
	cancelled // its context ends before Settle
	never     // no Settle, as after the death of the process
	endings
)

// run runs a call to its end, and settles it as a handler does. A call that panics settles with a context that does not
// have the values of its own.
func (e ending) run(ctx context.Context, t *testing.T, s *spend.Spend, cancel context.CancelFunc, call func()) {
	if e == never {
		call()
		return
	}
	func() {
		defer func() { _ = recover() }()
		defer func() {
			if e == panicked {
				ctx = t.Context()
			}
			if err := s.Settle(ctx); err != nil {
				t.Errorf("Settle: %v", err)
			}
		}()
		call()
		switch e {
		case panicked:
			panic("as drawn")
		case cancelled:
			cancel()
		}
	}()
	if err := s.Settle(ctx); !errors.Is(err, spend.ErrSettled) {
		t.Errorf("a second Settle: %v", err)
	}
	if _, err := s.Use(ctx, 0, 1000); !errors.Is(err, spend.ErrSettled) {
		t.Errorf("Use after Settle: %v", err)
	}
}
