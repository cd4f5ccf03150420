package hybridlimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

func TestWithRequestID(t *testing.T) {
	ctx := t.Context()
	if id := hybridlimit.RequestID(ctx); id != "" {
		t.Errorf("RequestID of a context without an id = %q, want none", id)
	}
	longest := strings.Repeat("x", 128)
	for _, id := range []string{"a", "", "\x00 {}\n\xff", longest} {
		with, err := hybridlimit.WithRequestID(ctx, id)
		if err != nil || hybridlimit.RequestID(with) != id {
			t.Errorf("%q: %q, %v", id, hybridlimit.RequestID(with), err)
		}
	}
	outer, _ := hybridlimit.WithRequestID(ctx, "outer")
	with, err := hybridlimit.WithRequestID(outer, longest+"y")
	if !errors.Is(err, hybridlimit.ErrInvalid) || hybridlimit.RequestID(with) != "outer" {
		t.Errorf("too long: %q, %v", hybridlimit.RequestID(with), err)
	}
	if want := `hybridlimit: request id ("` + longest + `…") must be at most 128 bytes, not 129`; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
	with, _ = hybridlimit.WithRequestID(context.WithoutCancel(outer), "inner")
	if hybridlimit.RequestID(with) != "inner" {
		t.Error("RequestID returned the outer id, want the inner one")
	}
}
