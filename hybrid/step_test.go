package hybrid

import "testing"

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
