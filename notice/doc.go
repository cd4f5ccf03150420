// Package notice tells when a key has used a part of its limit: for example, that a customer has made 80 % of the calls
// of the month.
//
//	watched, err := notice.New(limiter, notice.Config{On: func(c notice.Crossing) {
//		store(c.ID, c.Key, c.Used, c.Limit, c.End) // a unique index on the ID refuses the second one
//	}})
//	...
//	res, err := watched.Allow(ctx, customer) // decides as limiter does
//	...
//	watched.Close() // before limiter
//
// The limiter counts in fixed, sliding or calendar windows. It is of package local, global or hybrid, a class of one, or
// any adapter.Describer with their Peek. The other algorithms have no windows.
//
// # At least once
//
// Each process tells each crossing that it sees. It sees the Result of each call, and of a Peek 1 to 2 seconds after the
// last call of a key. So it also sees units that were charged, and units of other processes that the next sync has
// shown. A Result that is an estimate is looked at twice more within 10 seconds. While Redis is away, the looks go on
// for a quarter of an hour. What others use later, they tell.
//
// A process tells a threshold at most once in a window of a key, unless it has forgotten the key for others
// (Config.MaxKeys). Several processes tell the same crossing, with the same Crossing.ID. A receiver with a unique index
// on the ID has it exactly once.
//
// A crossing may be told early, by the units that other processes hold as leases and have not spent. A crossing that
// only the last second of a window has brought about, by the units of several processes, may be told by none. Windows
// of less than a few seconds are over before the Peek.
//
// These answers say nothing of the shared limit, and count for no crossing: of the fallback, of a switch, of a pause, of
// a cost above the limit, and those without an answer of Redis in time. A limit in shadow counts as any other.
//
// # Windows
//
// A window is named by the Result, so that it is the same in all processes whose clocks are within half a period of
// Redis's. A sliding window counts an estimate of the last period. It crosses in the periods of the clock, and what is
// used late in one may be told in the next one too. If the period of a limit changes, the crossings of the window of
// the change may be told twice, or with the begin of another window. A window from the first use begins at a second of
// Redis's clock: its crossings have one ID in processes whose clocks are within half a second.
//
// # Cost
//
// A call below the lowest threshold costs about 20 ns more than without this package, and one above it about 100 ns
// (BenchmarkAllow). Neither allocates. A Limiter takes 0.7 MB, and a key in memory 270 to 430 bytes (TestMemoryOfAKey).
// The Peeks of a process take at most a tenth of the time of one goroutine; the rest is done later. A Peek of local, and
// of hybrid for a key that the process knows, is work in memory. One of global is a message to Redis. So is one of hybrid
// for a key that the process has forgotten, and for a key of which a class has no units left, because only the limiter
// itself sees the units of its floor.
package notice
