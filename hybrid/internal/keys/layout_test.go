package keys

import (
	"testing"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/clock"
)

// TestEntryFitsItsSizeClass bounds the size of an entry, which is most of a key's memory. One more field would move the entry
// into the allocator's next size class.
func TestEntryFitsItsSizeClass(t *testing.T) {
	if got := unsafe.Sizeof(Entry{}); got > 288 {
		t.Errorf("an entry takes %d bytes, want at most 288", got)
	}
}

// TestCommonPathTouchesOneLine checks that the fast path, which finds an entry and admits from its budget, uses only the
// first 64 bytes of the entry. These are one cache line.
func TestCommonPathTouchesOneLine(t *testing.T) {
	var e Entry
	for name, end := range map[string]uintptr{
		"name":  unsafe.Offsetof(e.Name) + unsafe.Sizeof(e.Name),
		"short": unsafe.Offsetof(e.short) + unsafe.Sizeof(e.short),
		"word":  unsafe.Offsetof(e.Word) + unsafe.Sizeof(e.Word),
		"rest":  unsafe.Offsetof(e.rest) + unsafe.Sizeof(e.rest),
		"plan":  unsafe.Offsetof(e.Plan) + unsafe.Sizeof(e.Plan),
	} {
		if end > 64 {
			t.Errorf("%s ends at byte %d of an entry, want at most 64", name, end)
		}
	}
}

// TestALossIsNoticedInTime checks that account.LossNoticed is three heartbeat intervals, because a heartbeat notices a loss.
func TestALossIsNoticedInTime(t *testing.T) {
	if want := 3 * int64(census.Every); account.LossNoticed != want {
		t.Errorf("LossNoticed is %d ns, want %d", account.LossNoticed, want)
	}
}

// TestBudgetsFitTheClock checks that the packages account and clock agree on the bits of an epoch and on the longest life of a
// budget. A budget is packed with an epoch of the clock. It lasts no longer than the clock's goroutine runs without a slow path.
func TestBudgetsFitTheClock(t *testing.T) {
	if account.EpochBits != clock.EpochBits || account.Ticks != clock.Span {
		t.Errorf("a budget has %d epoch bits and lasts %d ticks, want %d and %d as in the clock",
			account.EpochBits, account.Ticks, clock.EpochBits, clock.Span)
	}
}
