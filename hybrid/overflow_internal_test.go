package hybrid

import "testing"

// TestOverflowKeepsNewCells checks that a heartbeat between the making of the cells and their first use keeps them, and that
// cells which stay full are dropped.
func TestOverflowKeepsNewCells(t *testing.T) {
	const now = 5e9
	var o overflow
	made := newCells(1, now)
	o.cells.Store(made)
	if o.release(now); o.cells.Load() != made {
		t.Error("new cells were dropped before their first use")
	}
	rise(&made.until, now+1e9) // a take
	if o.release(now + 1e9 + linger - 1); o.cells.Load() != made {
		t.Error("cells were dropped as soon as they were full")
	}
	if o.release(now + 1e9 + linger); o.cells.Load() != nil {
		t.Error("full cells stay")
	}
}
