// Package hybrid limits a whole fleet at memory speed: each process decides locally, processes sync with Redis in
// batches, and a circuit breaker switches to local-only limits while Redis does not answer.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	defer rdb.Close()
//	limiter, err := hybrid.New(rdb, hybridlimit.PerMinute(2), hybrid.Config{Name: "login"})
//	if err != nil {
//		panic(err)
//	}
//	defer limiter.Shutdown(context.Background())
//
//	for range 3 {
//		res, err := limiter.Allow(context.Background(), "alice")
//		fmt.Println(res.Allowed, res.Remaining, err)
//	}
//
// # Ten names to begin with
//
//   - [New] makes one limiter, and [Config] has its settings. Only Config.Name is required.
//   - [NewHub] is for several limiters on one Redis, and [HubConfig] has their common settings.
//   - [Hub.Limiter] adds a limit of a rate, [Hub.Concurrency] one of calls in flight, and [Hub.RateLeases] one of a hot
//     key in a large fleet.
//   - [Limiter.Allow] decides, and [Limiter.Wait] waits for its turn.
//   - [Limiter.Inspect] tells why a key is denied.
//   - [Limiter.Shutdown] settles with Redis before the process ends; so does Hub.Shutdown.
//
// # Model
//
// A process has two sources of units for a key. A lease is units that Redis has already debited and that this process
// has not spent yet. Credit is units that the process may admit before Redis is told, at most C of them. A decision
// takes units from one of the two and returns. If both run out, it waits for Redis, for at most Config.MaxWait. If
// Redis has shown that a key is empty, the key is denied locally until it can have refilled. After a refusal, while
// units are scarce, processes take turns in asking Redis. So a key over its limit causes almost no load on Redis.
//
// If a process's part of the bucket is below one unit (a few requests a minute over forty processes), nothing can be
// leased, and each decision costs a round trip. A log line reports this once. docs/protocol.md explains the protocol
// and proves the bound. docs/lab has measurements of whole fleets.
//
// # Which mode
//
// ModeAuto suits most uses: leases first, credit for spikes. ModeStrict admits only units that Redis has debited.
// ModeDeferred is the classic "count locally, push every K units or T". ModeExact asks Redis for every decision. The
// modes are one code path with two parameters: the largest lease, and C.
//
// # Guarantees
//
// Under a token or leaky bucket, the number of units that the fleet admits in any interval (s, t] is at most
//
//	ModeDeferred, ModeAuto:  Burst + rate·(t-s) + (N-1)·C
//	ModeStrict, ModeExact:   Burst + rate·(t-s)
//
// N is the number of processes. For ModeAuto, C is ⌊Overshoot·Burst/max(N-1, 1)⌋, so the excess is at most
// Overshoot·Burst. For ModeDeferred, C is min(K, ⌊Burst/max(N-1, 1)⌋). A call that waited for Redis counts at the
// moment at which Redis decided. The excess is carried as debt, down to -Burst, so the long-run rate holds.
//
// The bound holds for any schedule, delay, load and T, under these conditions:
//
//   - Redis's memory is intact.
//   - All processes have the same limit for the key.
//   - N is not underestimated.
//   - There is no Refund, Reset or Charge.
//   - No decision's Source is Fallback or Switch.
//
// A fixed window counts at most Rate + (N-1)·C. The estimate of a sliding window has the same bound. For windows, C has
// Rate in place of Burst. (An estimate is not a trailing count: see docs/windows.md.) A queue forwards no faster than
// its rate, and each forward is up to a round trip late. A log is exact, and asks Redis for each call.
//
// The guarantee has a lower half, for buckets in ModeAuto and ModeStrict while Redis answers. One process admits a full
// bucket whole. Four and ten processes that use it up in turn admit at least 95 % of it, and at least 88 % if 1000
// calls come within 3 ms. Leased units that are not spent are back in Redis within a second or two, and with Shutdown
// at once. Exceptions are leases that were granted while processes took turns, and faults of Redis: see
// docs/protocol.md.
//
// With Config.Classes, no grant and no lease takes a class below its floor. By credit, the level may fall below a floor
// by at most N·C, where N counts each class of each process. In ModeStrict and ModeExact, C is 0. Charge, and units
// that the fallback has admitted, are debited in any case.
//
// If no other process makes calls or holds units, a call that is denied by a bucket, a queue or a fixed window is
// admitted at its RetryAfter, or before. Single calls get as many units as Remaining said. Two conditions: a process
// that is alone and has no credit asks for units that come back once in SyncInterval, and while processes take turns,
// Remaining may exceed what this process can have before RetryAfter. docs/protocol.md has all of them.
//
// In a partition, the processes that reach Redis keep the whole limit. Each process that is cut off has its share on
// top: with FallbackShare and k of N processes cut off, the fleet admits at most limit·(1 + k/N). These shares are
// repaid when the partition ends.
//
// In a total outage with FallbackShare, N processes admit at most rate·t + max(burst, N·FallbackFloor) in any time t.
// In a window they admit at most its limit, or rate·t + N if the limit is below N. At most max(n, N·FallbackFloor) of n
// calls in flight run. N is the last known number of processes.
//
// A Redis that lost its state (wiped, or restored from a snapshot) admits used units again only for a short time.
// Processes notice the loss with their next answer or heartbeat. They send Redis the last level that they saw of each
// key that is not full by now. The lowest level counts, so the use of crashed and idle processes is restored with it.
// The fleet takes a quarter of Redis's time for this: about a second for a few thousand keys, and 20 000 keys a second
// beyond that. A key in use is restored at its next sync. Units that were debited after the last view of any living
// process are forgotten. A sliding log is not restored.
//
// A sync whose reply is lost is sent again. Redis counts the units that it pays or leases once. A sync that only asks
// for a call has no envelope, and asks again. A direct call (ModeExact, a sliding log, a key without memory) is sent
// once, and the fallback decides. In both cases Redis may keep the units of the lost reply: it counts at most the cost
// of that call too much. Stats.Uncertain has these units.
//
// When a process crashes, at most C units stay uncounted, and the units that it held are lost. A process that is frozen
// for longer than a lease may spend the units that it held, once.
package hybrid
