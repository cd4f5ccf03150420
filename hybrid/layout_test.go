package hybrid

import (
	"testing"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/clock"
)

// Most of a key's memory is its entry: one more field takes it into the next size class of the allocator.
func TestEntryFitsItsSizeClass(t *testing.T) {
	if got := unsafe.Sizeof(entry{}); got > 288 {
		t.Errorf("an entry takes %d bytes, want at most 288", got)
	}
	if got := unsafe.Sizeof(slot{}); got != 16 {
		t.Errorf("a slot of the table takes %d bytes, want 16", got)
	}
}

// Finding an entry and admitting from its word touch its first 64 bytes, one line of the cache.
func TestCommonPathTouchesOneLine(t *testing.T) {
	var e entry
	for name, end := range map[string]uintptr{
		"name":  unsafe.Offsetof(e.name) + unsafe.Sizeof(e.name),
		"short": unsafe.Offsetof(e.short) + unsafe.Sizeof(e.short),
		"word":  unsafe.Offsetof(e.word) + unsafe.Sizeof(e.word),
		"rest":  unsafe.Offsetof(e.rest) + unsafe.Sizeof(e.rest),
		"plan":  unsafe.Offsetof(e.plan) + unsafe.Sizeof(e.plan),
	} {
		if end > 64 {
			t.Errorf("%s ends at byte %d of an entry, want at most 64", name, end)
		}
	}
}

// The account has its own modes and fallbacks, because Mode and Fallback are part of the public surface: a conversion is by number.
func TestAccountHasTheSameModes(t *testing.T) {
	for ours, theirs := range map[Mode]account.Mode{
		ModeAuto: account.ModeAuto, ModeStrict: account.ModeStrict, ModeDeferred: account.ModeDeferred, ModeExact: account.ModeExact,
	} {
		if account.Mode(ours) != theirs {
			t.Errorf("%v is %d here and %d in an account", ours, ours, theirs)
		}
	}
	for ours, theirs := range map[Fallback]account.Policy{
		FallbackShare: account.FallbackShare, FallbackFull: account.FallbackFull,
		FallbackAllowAll: account.FallbackAllowAll, FallbackDenyAll: account.FallbackDenyAll,
	} {
		if account.Policy(ours) != theirs {
			t.Errorf("%v is %d here and %d in an account", ours, ours, theirs)
		}
	}
}

// A loss is noticed by a heartbeat: the account's constant must be as long as three of them.
func TestALossIsNoticedInTime(t *testing.T) {
	if want := 3 * int64(census.Every); account.LossNoticed != want {
		t.Errorf("LossNoticed is %d ns, want %d", account.LossNoticed, want)
	}
}

// A budget is packed with an epoch of the clock, and lasts no longer than the clock's goroutine runs without a slow path.
func TestBudgetsFitTheClock(t *testing.T) {
	if account.EpochBits != clock.EpochBits || account.Ticks != clock.Span {
		t.Errorf("budgets have %d bits of an epoch and last %d, the clock says %d and %d",
			account.EpochBits, account.Ticks, clock.EpochBits, clock.Span)
	}
}
