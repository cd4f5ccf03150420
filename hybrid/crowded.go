package hybrid

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// This file has the part of Inspect for keys for which memory has no room.

// explainOverflow explains a decision without Redis for a key for which memory has no room: see withoutMemory.
func (x *explanation) explainOverflow(why string) {
	const full = "the fallback (%v) decides since %s, and memory is full of keys that owe: there is none to count this one in"
	policy, t := x.l.control.Fallback(), x.conditions.Fallback
	if !t.Counts() {
		if policy == fallback.PolicyAllowAll {
			x.allow(hybridlimit.SourceFallback, full, policy, why)
		} else {
			x.deny(hybridlimit.SourceFallback, x.now+int64(x.l.cfg.SyncInterval), full, policy, why)
		}
		return
	}
	left := t.Share.Left(t.Size, x.now)
	const some = full + ", and of its share of %d units %v are left"
	if left >= float64(1+t.Floor)-fallback.Slack {
		x.allow(hybridlimit.SourceFallback, some, policy, why, t.Burst, rounded(left))
		return
	}
	x.deny(hybridlimit.SourceFallback, x.now+t.Share.Wait(t.Size, 1, x.now), some, policy, why, t.Burst, rounded(left))
}
