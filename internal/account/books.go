package account

// Books records the effect of an event on the units of a key. The shell adds it to the limiter's counters. hybrid.Stats
// has the equation that holds for these counters.
type Books struct {
	Acked    int64 // owed units that Redis acknowledged
	Debited  int64 // units that Redis granted to waiting calls, or leased
	Netted   int64 // owed units that a grant or a lease paid
	Refunded int64 // units given back that Redis acknowledged, or that are void
	Returned int64 // units that callers gave back
	Expired  int64 // leased units that ended unspent
	Lost     int64 // granted or leased units that came too late, or for calls that had left
	Dropped  int64 // owed units that Redis is never told of
	Forgiven int64 // units of the fallback that had been refilled when Redis came back
	Resynced int64 // 1: the sync goes out because Redis may have lost the key
}
