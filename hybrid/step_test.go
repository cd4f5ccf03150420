package hybrid

import (
	"testing"
	"time"
)

// A denial lasts no longer than Redis, which knows no debt beyond a whole
// burst, would have made it last. Was one burst's refill longer.
func TestAProofEndsAtTheFloor(t *testing.T) {
	terms := stepTerms()
	s := seen(terms, -10)
	s.pending = 10
	if got := s.provedUntil(terms, 1) - s.view.sent; got != 1100*ms {
		t.Errorf("one unit in %v", time.Duration(got))
	}
}

func TestMayBeFull(t *testing.T) {
	const full, never = 10 * sec, -1
	for _, tc := range []struct {
		born, evicted, now int64
		want               bool
	}{
		{0, never, 2*full - 1, false}, // Was true from one time to full: the key may be in debt
		{0, never, 2 * full, true},
		{5, never, 2 * full, false},
		{0, full, 3*full - 1, false},
		{0, full, 3 * full, true},
		{0, 0, 2*full - 1, false},
	} {
		if got := mayBeFull(full, tc.born, tc.evicted, tc.now); got != tc.want {
			t.Errorf("%+v", tc)
		}
	}
}
