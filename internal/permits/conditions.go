package permits

// Conditions is what a decision needs besides the holding. Times are ns.
type Conditions struct {
	Standing       // of the process
	Limit    int64 // permits of the key
	Procs    int64 // processes of the fleet, at least 1
	Share    int64 // permits that the fallback gives this process: see Share; 0: none
	Away     bool  // Redis does not answer: the fallback decides
	Joins    bool  // a process that is not a member will soon be one: calls wait, and the fallback decides nothing
	Exact    bool  // the process keeps no spare permits
	Ends     bool  // no call comes any more: permits that no call uses go back at once
	Period   int64 // of the heartbeats, ns; the same in the whole fleet
}

// Standing is the membership of a process in its fleet.
type Standing struct {
	Until   int64  // ns; until then no other process takes a holding of this one off
	Session uint64 // grows each time that a heartbeat came too late, and with a new identity
}

// Live reports whether the process is a member.
func (s Standing) Live(now int64) bool { return now < s.Until }

// Share returns the permits that each of n processes may use without Redis. It is rounded down, so that all of them
// together use no more than the limit.
func Share(limit, n int64) int64 { return limit / max(1, n) }

const (
	// second is in ns.
	second = 1_000_000_000
	// mostCredit bounds the asks and give-backs for which earlier calls have paid. Each call pays for one of both, so
	// calls pay for no more messages than the two of a sorted set. Ops without a payment (unpaid, tellAgain) come on
	// top.
	mostCredit = 8
	// unpaid is the least time after the last op of a key before one that no call has paid for.
	unpaid = second
	// listen is the longest time after an op until the next one of a process whose calls find their permits at hand. It
	// is five times as long while a quarter of the permits is free.
	listen = second
	// together is the longest time that asks, and give-backs, wait for others of their key: see Holding.gap.
	together = second / 50
	// firstRetry and lastRetry are the times after which a waiting call that was refused asks again.
	firstRetry, lastRetry = second / 10, second
	// tellAgain is the time after which a process tells a holding again, so that it does not expire in Redis, and Redis
	// does not forget the number of the process: that happens after an Hour. It is jittered down by a quarter.
	tellAgain = 30 * 60 * second
)
