package hybrid

import (
	"testing"
	"time"
)

// TestWhyBroken checks that a process without processor time does not blame Redis.
func TestWhyBroken(t *testing.T) {
	for late, want := range map[time.Duration]string{0: msgBroken, 5 * time.Millisecond: msgBroken, starvedFrom: msgStarved, time.Second: msgStarved} {
		msg, attrs := whyBroken(late)
		if msg != want || len(attrs) != map[string]int{msgStarved: 1}[want] {
			t.Errorf("%v late: %q, %v", late, msg, attrs)
		}
	}
}
