package hybrid

import (
	"testing"
	"unsafe"
)

// What a key costs is mostly its entry: a field more takes it into the next
// size class of the allocator.
func TestEntryFitsItsSizeClass(t *testing.T) {
	if got := unsafe.Sizeof(entry{}); got > 288 {
		t.Errorf("an entry takes %d bytes, want at most 288", got)
	}
	if got := unsafe.Sizeof(slot{}); got != 16 {
		t.Errorf("a slot of the table takes %d bytes, want 16", got)
	}
}
