package account

// Books is what an event did to the units of a key. The shell adds it to the limiter's counters: see hybrid.Stats for the
// equation that all of them obey.
type Books struct {
	Acked    int64 // owed units that Redis acknowledged
	Debited  int64 // units that Redis granted to waiting calls, or leased
	Netted   int64 // owed units that a grant paid
	Refunded int64 // units given back that Redis acknowledged, or that are void
	Returned int64 // units that callers gave back
	Expired  int64 // leased units that nobody spent
	Lost     int64 // granted units that came too late, or for calls that had left
	Dropped  int64 // owed units that Redis never hears of
	Forgiven int64 // units of the fallback whose part had refilled when Redis came back
	Resynced int64 // 1: the sync goes out because Redis may have lost the key
}
