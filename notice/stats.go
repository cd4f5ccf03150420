package notice

import "sync/atomic"

// Stats are the counts of a Limiter since New, of all its classes.
type Stats struct {
	// Keys is the number of keys in memory.
	Keys int
	// Waiting is the number of crossings that wait for On.
	Waiting int
	// Told is the number of crossings that On was told.
	Told uint64
	// Panics is the number of these for which On panicked.
	Panics uint64
	// Lost is the number of crossings that were seen and are not told: 1024 others waited until their window was over,
	// or the call ended after Close.
	Lost uint64
	// Evicted is the number of keys that made room for others.
	Evicted uint64
	// Skipped is the number of looks that are left out, because as many keys as 2·MaxKeys wait for theirs.
	Skipped uint64
	// Failed is the number of looks without an answer. Most are repeated.
	Failed uint64
	// Unwatched is the number of calls above the lowest threshold of keys whose limit has no windows.
	Unwatched uint64
}

// counts are atomic counters of Stats.
type counts struct {
	told, panics, lost, evicted, skipped, failed, unwatched atomic.Uint64
}

// Stats returns the counts. It locks one shard of the keys after the other.
func (l *Limiter) Stats() Stats {
	w := l.watch
	c := &w.counts
	s := Stats{
		Waiting: len(w.told), Told: c.told.Load(), Panics: c.panics.Load(), Lost: c.lost.Load(), Evicted: c.evicted.Load(),
		Skipped: c.skipped.Load(), Failed: c.failed.Load(), Unwatched: c.unwatched.Load(),
	}
	for i := range w.shards {
		w.shards[i].mu.Lock()
		s.Keys += w.shards[i].keys.Len()
		w.shards[i].mu.Unlock()
	}
	return s
}
