package member

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// TestWantedMarks checks what is told and what is news: a mark that was heard just now is not told again, and a mark is news once for
// each time at which it was told.
func TestWantedMarks(t *testing.T) {
	w := newWanted()
	due := func() bool {
		select {
		case <-w.told:
			return true
		default:
			return false
		}
	}
	w.Tell("b")
	w.Tell("a")
	w.Tell("b")
	if got := w.take(); !due() || !slices.Equal(got, []string{"a", "b"}) || len(w.take()) > 0 {
		t.Errorf("told %q", got)
	}
	all := []wire.Mark{{At: 7, Text: "a"}, {At: 8, Text: "b"}}
	if got := w.news(all); len(got) != 2 || !got["a"] || !got["b"] {
		t.Errorf("news %v", got)
	}
	if got := w.news(append(all[1:], wire.Mark{At: 9, Text: "a"})); len(got) != 1 || !got["a"] {
		t.Errorf("news of a mark that was told again: %v", got)
	}
	if w.Tell("a"); due() || len(w.take()) > 0 {
		t.Error("a mark that was heard just now is told again")
	}
	if got := w.news(nil); got != nil {
		t.Errorf("no marks are news: %v", got)
	}
	if w.Tell("a"); !due() || len(w.take()) != 1 {
		t.Error("a mark that is no longer heard is not told")
	}
	for i := range 2 * wire.MaxWanted {
		w.Tell(fmt.Sprint(i))
	}
	if got := w.take(); len(got) != wire.MaxWanted {
		t.Errorf("%d marks are told, want at most %d", len(got), wire.MaxWanted)
	}
}
