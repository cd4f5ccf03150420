package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// static returns the answer of a limit that counts nothing. ok is false for any other limit.
func static(p *account.Plan, res hybridlimit.Result, n int64) (_ hybridlimit.Result, ok bool) {
	if !account.Static(p.Limit) {
		return res, false
	}
	res.Limit, res.Source = p.Burst, hybridlimit.SourceStatic
	if res.Allowed = p.Limit.Algorithm == hybridlimit.AlgUnlimited; res.Allowed {
		res.Granted, res.Remaining = n, res.Limit
	} else {
		res.RetryAfter = hybridlimit.Never
	}
	return res, true
}

// slotTime returns the time in which a queue serves one unit; 0: the plan is of no queue.
func slotTime(p *account.Plan) time.Duration {
	if !p.Bucket.Queue {
		return 0
	}
	return time.Duration(p.Each())
}
