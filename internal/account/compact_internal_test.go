package account

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// TestEmptyCompact checks that a compact form is empty only if forgetting the account loses nothing, and that Forget does
// the same as Begin and Forget of the account.
func TestEmptyCompact(t *testing.T) {
	viewed := view{level: 3, cap: 10, received: 5, redisAt: 7}
	for name, tc := range map[string]struct {
		a     Account
		empty bool
	}{
		"unknown":  {Account{}, true},
		"viewed":   {Account{view: viewed, demand: demand{sum: 2, sq: 2, at: 5, young: 1}}, true},
		"denied":   {Account{view: viewed, budget: Budget{Kind: DenyBudget}}, true},
		"refused":  {Account{refusal: Refusal{N: 1, Until: 50, Relook: 60}}, true},
		"leased":   {Account{view: viewed, leases: [2]lease{{units: 4, end: 50}}, budget: Budget{LeaseBudget, 4}}, false},
		"owing":    {Account{view: viewed, pending: 1}, false},
		"credited": {Account{view: viewed, pending: 1, budget: Budget{CreditBudget, 2}}, false},
	} {
		c, ok := tc.a.Compact()
		if !ok || c.Empty() != tc.empty {
			t.Errorf("%s: compact %t, empty %t, want true and %t", name, ok, c.Empty(), tc.empty)
		}
		if !tc.empty {
			continue
		}
		const left, now = 9, 10
		a := tc.a
		if !a.MayGo(&Conditions{}, left, now) {
			t.Errorf("%s: the account may not go", name)
		}
		spent, expired := a.Begin(left, now)
		if books := a.Forget(); books != (Books{}) || expired != 0 {
			t.Errorf("%s: forgetting the account changes the books: %+v, %d expired", name, books, expired)
		}
		denied := int64(0)
		if spent.Kind == DenyBudget {
			denied = spent.Units
		}
		if got := c.Forget(left); got != denied || c != (Compact{}) {
			t.Errorf("%s: %d denied, want %d; %+v is left", name, got, denied, c)
		}
	}
}

// TestFallbackThatDeniesKeepsNothing checks that a denial by FallbackDenyAll changes nothing in the account. With a bucket
// that is never used, each key would have taken 0.5 KB more while Redis is away.
func TestFallbackThatDeniesKeepsNothing(t *testing.T) {
	c := Conditions{Broken: true, Fallback: Fallback{Size: fallback.Size{Kind: fallback.KindDenyAll, Burst: 10, PerNs: 1e-9}}, Tick: 5e6}
	var a Account
	if v := a.Call(&c, 1, 100); v.Action != Deny || v.Retry != c.Tick {
		t.Errorf("%+v, want a denial for a tick", v)
	}
	if a != (Account{}) {
		t.Errorf("the account keeps %+v", a)
	}
}
