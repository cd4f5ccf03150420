package redistest_test

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestOddAnswersWhatItIsTold(t *testing.T) {
	var got []string
	addr := redistest.Odd(t, func(cmd []string) string {
		got = cmd
		if cmd[1] == "hang up" {
			return ""
		}
		return ":7\r\n"
	})
	c := redistest.Client(t, addr)
	if n, err := c.EvalSha(t.Context(), "sha", []string{"k"}, "a").Int64(); n != 7 || err != nil || strings.Join(got, " ") != "EVALSHA sha 1 k a" {
		t.Errorf("%d, %v, of %q", n, err, got)
	}
	if err := c.Eval(t.Context(), "hang up", nil).Err(); err == nil {
		t.Error("it did not hang up")
	}
}
