package parts

import "github.com/hybridlimit/hybridlimit"

// Join returns the state of a split key with a limit, from the states of all its parts.
func Join(limit hybridlimit.Limit, states []hybridlimit.KeyState) hybridlimit.KeyState {
	all := hybridlimit.KeyState{Limit: limit}
	for i, s := range states {
		all.Found = all.Found || s.Found
		all.Left += s.Left
		all.Debt += s.Debt
		all.Debited += s.Debited
		all.Leased += s.Leased
		all.ResetAfter = max(all.ResetAfter, s.ResetAfter)
		all.TTL = max(all.TTL, s.TTL)
		if i == 0 || s.RetryAfter < all.RetryAfter {
			all.RetryAfter = s.RetryAfter
		}
		if all.Born.IsZero() || !s.Born.IsZero() && s.Born.Before(all.Born) {
			all.Born = s.Born
		}
	}
	return all
}
