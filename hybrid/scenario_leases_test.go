package hybrid_test

// A cold key has no view: no answer has told this process what is left of it. So its first call waits one round trip,
// 1 ms here, unless the process can know that the bucket is full.
var scenarioColdStart = []step{
	{`fleet processes=3 limit="10/s burst 40" mode=auto overshoot=20%`, "t=1.1s, N=3"},
	// A young process gives no credit: others might not have counted it yet. Without credit each call asks Redis.
	{"stats p1 fleet credit", "p1: fleet 3, credit 0"},
	{"allow p1 key=a times=2", "2 × redis allowed, remaining 38, after 1ms"},
	// From 1.5 s after the first heartbeat N is trusted: C = 20% of 40, over the N-1 = 2 others, is 4.
	{"wait until=2.1s", "t=2.1s"},
	{"stats p1 credit", "p1: credit 4"},
	// The first call still asks. Its answer is a view, on which credit can be given.
	{"allow p1 key=b times=3", "redis allowed, remaining 39, after 1ms", "2 × credit allowed, remaining 37"},
	{"redis key=b", "level 39, debited 1"},
	{"stats p1 owed", "p1: owed 2"},
	// What was spent on credit is paid by the next sync, 50 ms later at most. It brings no lease: three calls are
	// no demand yet. 3 are debited, and 0.6 of a unit has come back.
	{"wait 60ms", "t=2.161s"},
	{"redis key=b", "level 37.6, debited 3"},
	{"stats p1 owed held", "p1: owed 0, held 0"},
	// The bucket is full within 4 s, and within 8 s out of the deepest debt. A limiter as old as that, which has
	// evicted nothing, knows that a key which it does not know is full, as far as its own use goes: it gives blind
	// credit. The use of others is what C allows for.
	{"wait until=8.5s", "t=8.5s"},
	{"allow p1 key=c", "credit allowed, remaining 39"},
	// A newcomer can do neither: it does not know the others, and they do not know it.
	{"join p4"},
	{"wait 100ms", "t=8.6s"},
	{"stats p4 fleet credit", "p4: fleet 4, credit 0"},
	{"allow p4 key=c", "redis allowed, remaining 38, after 1ms"},
	// With N = 4 the same overshoot makes C = 8/3 = 2, for the newcomer too once it has been silent for 1.5 s.
	// Blind credit it gives after 8 s only.
	{"wait until=11.3s", "t=11.3s"},
	{
		"stats all fleet credit",
		"p1: fleet 4, credit 2",
		"p2: fleet 4, credit 2",
		"p3: fleet 4, credit 2",
		"p4: fleet 4, credit 2",
	},
	{"allow p4 key=d times=2", "redis allowed, remaining 39, after 1ms", "credit allowed, remaining 38"},
	{"wait until=17.3s", "t=17.3s"},
	{"allow p4 key=e", "credit allowed, remaining 39"},
}

// Ten units a second, at most 20 saved up: a unit comes back every 100 ms. Redis refills by its own clock when it
// is asked, and a process that knows the level follows by its own. This one is alone, so what it knows is all there
// is.
var scenarioRefill = []step{
	{`fleet processes=1 limit="10/s burst 20" mode=auto`, "t=1.1s, N=1"},
	{"wait until=2.1s", "t=2.1s"},
	{"allow p1 key=a n=20", "redis allowed, remaining 0, after 1ms"},
	{"redis key=a", "level 0, debited 20"},
	{"messages p1", "p1: 1"},
	// Redis has just said that nothing is left, which proves that no unit can be had for 100 ms from then, nor five
	// for 500 ms. A denial costs no message. RetryAfter is up to 6 ms too long: the process does not know when in
	// the round trip of 1 ms Redis answered, and the fast path reads no clock but one that ticks every 5 ms. (The
	// turn that Redis names is for a fleet: see scenarioOverLimit.)
	{"allow p1 key=a", "deny_cache denied, retry in 100ms"},
	{"allow p1 key=a n=5", "deny_cache denied, retry in 500ms"},
	{"messages p1", "p1: 0"},
	// After 500 ms Redis is asked, and grants all five or none.
	{"wait 500ms", "t=2.601s"},
	{"redis key=a", "level 5, debited 20"},
	{"allow p1 key=a n=5", "redis allowed, remaining 0, after 1ms"},
	{"redis key=a", "level 0, debited 25, next turn in 497.5ms"},
	// The bucket is full after 2 s, and gets no fuller.
	{"wait 3s", "t=5.602s"},
	{"redis key=a", "level 20, debited 25"},
	// So a cost above the burst can never be had. To say so takes no Redis.
	{"allow p1 key=a n=21", "static denied, retry never"},
}

// The same key as in scenarioNearLimitStrict, in ModeAuto: what Strict has to wait for, Auto spends on credit, C =
// 10% of 100 here, and pays by the next sync.
var scenarioNearLimitAuto = []step{
	{`fleet processes=2 limit="100/s burst 100" mode=auto overshoot=10%`, "t=1.1s, N=2"},
	{"wait until=2.1s", "t=2.1s"},
	// Nobody waits, not even for the first call: the process is older than twice the time to full, 1 s, so the key
	// is full as far as it is concerned. Payments wait for T. A lease is not worth it yet.
	{"allow p1 key=a times=6 every=50ms", "6 × credit allowed, remaining 98"},
	{"redis key=a", "level 100, debited 4"},
	{"stats p1 paid netted held owed", "p1: paid 4, netted 0, held 0, owed 2"},
	{"messages p1", "p1: 5"},
	// With a demand above eight a second the key lives on leases, as in Strict.
	{"allow p1 key=a times=40 every=50ms", "4 × credit allowed, remaining 98", "36 × lease allowed, remaining 99"},
	{"stats p1 admitted paid granted held", "p1: admitted 46, paid 9, granted 44, held 7"},
	{"redis key=a", "level 82, debited 53, ledger 18"},
	{"messages p1", "p1: 5"},
	// A spike beyond the lease need not wait either: 10 on credit, while a sync is on its way. One call waits
	// for that, and the lease that it brings serves the rest, with credit again.
	{
		"allow p1 key=a times=30",
		"7 × lease allowed, remaining 82",
		"10 × credit allowed, remaining 72",
		"redis allowed, remaining 71, after 1ms",
		"9 × lease allowed, remaining 62",
		"3 × credit allowed, remaining 59",
	},
	{"stats p1 owed", "p1: owed 3"},
}

// A lease must not be out while the bucket fills up behind it, or the fleet could spend both. Far from full that is
// a matter of time. This bucket is always nearly full: 20 calls a second of 100, and a burst of 100. So Redis keeps
// a ledger of what is leased, and the bucket refills to so much less.
var scenarioNearLimitStrict = []step{
	{`fleet processes=2 limit="100/s burst 100" mode=strict`, "t=1.1s, N=2"},
	// Strict has no credit: each call asks Redis, until the demand is worth a lease.
	{
		"allow p1 key=a times=6 every=50ms",
		"4 × redis allowed, remaining 99, after 1ms",
		"2 × lease allowed, remaining 98",
	},
	// Redis debited 4 + 2 units. Four calls, less 1.5 standard deviations, in half a second at least, are 2.6 a
	// second, hence the 2. Spent or not, they stay in the ledger until the next sync reports the rest of them: the
	// bucket is full at 98.
	{"redis key=a", "level 98, debited 6, ledger 2"},
	{"stats p1 granted held", "p1: granted 6, held 0"},
	{"messages p1", "p1: 5"},
	// A lease is topped up to what the key uses in a second when it runs low, and renewed before it ends: three
	// messages for 40 calls. The first call finds the lease used up.
	{
		"allow p1 key=a times=40 every=50ms",
		"redis allowed, remaining 97, after 1ms",
		"39 × lease allowed, remaining 99",
	},
	{"stats p1 admitted granted held", "p1: admitted 46, granted 59, held 13"},
	{"redis key=a", "level 81, debited 59, ledger 19"},
	{"messages p1", "p1: 3"},
	// The caller goes away. Before the lease ends, the process returns the units that it has not spent. Redis takes
	// them off its ledger, and the bucket is full.
	{"wait 1s", "t=4.3s"},
	{"stats p1 held expired refunded", "p1: held 0, expired 0, refunded 13"},
	{"redis key=a", "level 100, debited 46"},
	{"messages p1", "p1: 1"},
}

// Three processes want 300 a second of a key that has 10, and a burst of 20. Once Redis has refused a call, it
// gives each process that asks a turn: a time to come again, the later the more it takes. Until then the process
// denies from memory.
var scenarioOverLimit = []step{
	{`fleet processes=3 limit="10/s burst 20" mode=strict`, "t=1.1s, N=3"},
	// The burst, and what comes back in a second: 20 + 9.9.
	{
		"allow all key=a times=100 every=10ms sum",
		"p1: 90 deny_cache denied, 3 lease allowed, 7 redis allowed",
		"p2: 90 deny_cache denied, 1 lease allowed, 8 redis allowed, 1 redis denied",
		"p3: 91 deny_cache denied, 1 lease allowed, 8 redis allowed",
		"together: 28 allowed, 272 denied",
	},
	{"messages all", "p1: 8", "p2: 9", "p3: 8"},
	// From now on 10 a second, and each process has its part. A sync brings a unit for the call that waits, and
	// perhaps one more as a lease.
	{
		"allow all key=a times=100 every=10ms sum",
		"p1: 96 deny_cache denied, 1 lease allowed, 3 redis allowed",
		"p2: 96 deny_cache denied, 2 lease allowed, 2 redis allowed",
		"p3: 97 deny_cache denied, 1 lease allowed, 2 redis allowed",
		"together: 11 allowed, 289 denied",
	},
	{"messages all", "p1: 3", "p2: 2", "p3: 2"},
	// Ten times the load, and Redis hears no more of it: one sync per process and turn.
	{
		"allow all key=a times=1000 every=1ms sum",
		"p1: 997 deny_cache denied, 1 lease allowed, 2 redis allowed",
		"p2: 996 deny_cache denied, 2 lease allowed, 2 redis allowed",
		"p3: 998 deny_cache denied, 2 redis allowed",
		"together: 9 allowed, 2991 denied",
	},
	{"messages all", "p1: 2", "p2: 2", "p3: 2"},
	// 48 were admitted and 1.9 are left, of the 20 + 29.9 that there were.
	{"redis key=a", "level 1.9, debited 48, next turn in 331.2ms"},
	// Who is denied hears when its own turn is. The units that are there are for those whose turn comes before.
	{"allow p1 key=a", "deny_cache denied, retry in 331.7ms"},
}

// A fixed window of ten seconds, by Redis's clock: they end at t=10s, 20s and so on. Deferred gives each of two
// processes credit for all of it, so that the fleet may admit twice the limit in one window, but not in two.
var scenarioWindows = []step{
	{`fleet processes=2 limit="40/10s fixed window" mode=deferred`, "t=1.1s, N=2"},
	{"wait until=2.5s", "t=2.5s"},
	{"stats all credit", "p1: credit 40", "p2: credit 40"},
	// Each has a view, of 39 and of 38, and spends it before the other's units are known.
	{"allow all key=a", "p1: redis allowed, remaining 39, after 1ms", "p2: redis allowed, remaining 38, after 1ms"},
	{
		"allow all key=a times=39 sum",
		"p1: 39 credit allowed",
		"p2: 38 credit allowed, 1 deny_cache denied",
		"together: 77 allowed, 1 denied",
	},
	{"wait 100ms", "t=2.602s"},
	// 79 of 40. What is too much is carried into the next window, which has one left.
	{"redis key=a", "level -39, debited 79"},
	{"wait until=10.5s", "t=10.5s"},
	{"redis key=a", "level 1, debited 79"},
	// A view dies with its window, so the first call of each process asks. p1 gets the one, and p2 hears that there
	// is nothing until the window ends.
	{
		"allow all key=a times=2",
		"p1: redis allowed, remaining 0, after 1ms",
		"p1: deny_cache denied, retry in 9.499s",
		"p2: redis denied, retry in 9.499s, after 1ms",
		"p2: deny_cache denied, retry in 9.499s",
	},
	// Now that it is repaid, the next window is whole.
	{"wait until=20.5s", "t=20.5s"},
	{"redis key=a", "level 40, debited 80"},
	// What p1 admits at the end of a window, and Redis hears of in the next, counts in its own: 3 of 40 are used
	// there, and nothing in the new one.
	{"allow p1 key=a", "redis allowed, remaining 39, after 1ms"},
	{"wait until=29.98s", "t=29.98s"},
	{"allow p1 key=a times=2 every=1ms", "2 × credit allowed, remaining 37"},
	{"wait until=30.2s", "t=30.2s"},
	{"stats p1 owed paid dropped", "p1: owed 0, paid 41, dropped 0"},
	{"redis key=a", "level 40, debited 83"},
}

// Processes count each other by heartbeats, one a second. The more there are the less credit each has: (N-1)·C is
// at most the overshoot, 12 units here.
var scenarioFleetSize = []step{
	{`fleet processes=2 limit="100/s burst 100" mode=auto overshoot=12%`, "t=1.1s, N=2"},
	{"wait until=2.5s", "t=2.5s"},
	{"stats all fleet credit", "p1: fleet 2, credit 12", "p2: fleet 2, credit 12"},
	// A newcomer is silent for 1.5 s: by then the others' next heartbeats, at t=3s, have counted it.
	{"join p3"},
	{"wait until=3.2s", "t=3.2s"},
	{"stats all fleet credit", "p1: fleet 3, credit 6", "p2: fleet 3, credit 6", "p3: fleet 3, credit 0"},
	{"wait until=4.3s", "t=4.3s"},
	{"stats all fleet credit", "p1: fleet 3, credit 6", "p2: fleet 3, credit 6", "p3: fleet 3, credit 6"},
	// Who leaves in good order says so. The others believe it when three counts in a row say it, at t=5s, 6s and
	// 7s: a wiped Redis counts too few as well, but not for long.
	{"leave p1", "p1 left after 1ms"},
	{"wait until=6.3s", "t=6.3s"},
	{"stats p2 fleet credit", "p2: fleet 3, credit 6"},
	{"wait until=7.3s", "t=7.3s"},
	{"stats p2 fleet credit", "p2: fleet 2, credit 12"},
	// Who crashes is counted for 3 s after its last heartbeat, at t=7s here. The first count of p3 without it is at
	// t=10.5s, the third at t=12.5s. A fleet of one has the credit of a fleet of two: the whole overshoot.
	{"crash p2"},
	{"wait until=12.3s", "t=12.3s"},
	{"stats p3 fleet credit", "p3: fleet 2, credit 12"},
	{"wait until=12.7s", "t=12.7s"},
	{"stats p3 fleet credit", "p3: fleet 1, credit 12"},
}
