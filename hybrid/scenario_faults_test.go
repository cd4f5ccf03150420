package hybrid_test

// A decision is never late. In ModeStrict a call that Redis does not answer within MaxWait, 20 ms, is denied, as
// long as the breaker has not found Redis gone.
var scenarioSlowRedis = []step{
	{`fleet processes=1 limit="10/h burst 100" mode=strict`, "t=1.1s, N=1"},
	{"hang p1"},
	// The first call waits. It is known then that Redis keeps this key waiting for longer than MaxWait, and the
	// next calls do not wait in vain.
	{"allow p1 key=a", "timeout denied, retry in 5ms, after 20ms"},
	{"wait 10ms", "t=1.13s"},
	{"allow p1 key=a times=2", "2 × timeout denied, retry in 5ms"},
	// Redis answers after 100 ms. It grants a unit to a caller who has gone, which is lost and not given back.
	// Three calls are no demand yet, so there is no lease.
	{"wait until=1.2s", "t=1.2s"},
	{"resume p1"},
	{"wait until=1.4s", "t=1.4s"},
	{"stats p1 admitted granted lost held expired", "p1: admitted 0, granted 1, lost 1, held 0, expired 0"},
	{"redis key=a", "level 99, debited 1"},
	{"allow p1 key=a", "redis allowed, remaining 98, after 1ms"},
}

// A reply that is lost leaves a process in doubt: was its batch applied? It sends the same batch again, under the
// same number, and Redis, which keeps the answer to each process's last batch, gives that again and applies nothing
// twice.
var scenarioLostReply = []step{
	{`fleet processes=1 limit="10/h burst 100" mode=deferred`, "t=1.1s, N=1"},
	{"wait until=2.1s", "t=2.1s"},
	{"allow p1 key=a", "redis allowed, remaining 99, after 1ms"},
	{"redis key=a", "level 99, debited 1"},
	// Four more on credit. They are paid 50 ms later at most, at t=2.15s, and the reply to that sync will be lost.
	{"lose-reply p1"},
	{"allow p1 key=a times=4", "4 × credit allowed, remaining 95"},
	// It just was: Redis has debited them, and the process, which does not know, still owes them.
	{"wait until=2.152s", "t=2.152s"},
	{"redis key=a", "level 95, debited 5"},
	{"stats p1 owed paid", "p1: owed 4, paid 0"},
	// What is used meanwhile is for a later batch: this one is frozen.
	{"allow p1 key=a times=2", "2 × credit allowed, remaining 93"},
	// The second try comes after some 5 ms. Redis has seen the batch before.
	{"wait until=2.3s", "t=2.3s"},
	{"stats p1 failures seen owed paid", "p1: failures 1, seen 1, owed 0, paid 6"},
	// 1 + 4 + 2, nothing lost, nothing doubled.
	{"redis key=a", "level 93, debited 7"},
	// Redis does not know of a request that is lost, and applies the second try. The process does the same in
	// either case: it cannot tell one from the other.
	{"lose-request p1"},
	{"allow p1 key=a times=3", "3 × credit allowed, remaining 90"},
	{"wait until=2.5s", "t=2.5s"},
	{"stats p1 failures seen owed paid", "p1: failures 2, seen 1, owed 0, paid 9"},
	{"redis key=a", "level 90, debited 10"},
}

// While Redis does not answer each process decides by its share of the limit, 1/N, and what it admits so it owes.
var scenarioOutage = []step{
	{`fleet processes=2 limit="20/m burst 40" mode=auto overshoot=10%`, "t=1.1s, N=2"},
	{"wait until=2.1s", "t=2.1s"},
	// 20 of 40 are left when Redis dies.
	{"allow p1 key=a n=20", "redis allowed, remaining 20, after 1ms"},
	{"redis key=a", "level 20, debited 20"},
	{"kill-redis"},
	// Nobody has noticed: C = 10% of 40 = 4 units go on credit. The fifth call asks Redis, and waits for MaxWait,
	// 20 ms, and not longer. Then the process's share decides.
	{"allow p1 key=a times=5", "4 × credit allowed, remaining 16", "fallback allowed, remaining 15, after 20ms"},
	// Three failures in a row open the breaker: no call waits any more.
	{"wait until=2.5s", "t=2.5s"},
	{"stats p1 broken", "p1: broken true"},
	// The share is a bucket of 40/N = 20, at first as full as the whole one was: of that 20 were left when last
	// seen, less the 4 on credit. So it held 8, and has 7.
	{"allow p1 key=a times=8", "7 × fallback allowed, remaining 8", "fallback denied, retry in 5.601s"},
	// The share refills at its part of the rate, 10 a minute: a unit in 6 s.
	{"wait until=9s", "t=9s"},
	{"allow p1 key=a times=2", "fallback allowed, remaining 9", "fallback denied, retry in 5.101s"},
	{"stats p1 broken owed", "p1: broken true, owed 13"},
	// Redis is back and knows nothing. Probes find it within a second, and the first syncs pay: 4 of credit and 9
	// of fallback. The first one is from before the outage, and still asks for the fifth call. Nobody gets that unit.
	{"restart-redis"},
	{"wait until=13.1s", "t=13.1s"},
	{"stats all broken owed paid", "p1: broken false, owed 0, paid 13", "p2: broken false, owed 0, paid 0"},
	// p1 also told its view: 20 were left at t=2.1s, 3.6 have come back in 11 s, and 14 were debited.
	{"redis key=a", "level 9.6, debited 14"},
	// Back on the shared limit. Credit is given once N has been counted anew for 1.5 s.
	{"allow p2 key=a", "redis allowed, remaining 8, after 1ms"},
	{"allow p1 key=a times=2", "2 × credit allowed, remaining 7"},
}

// A Redis that lost its memory would give everybody a full bucket. But processes remember what it said to them
// last, and tell it.
var scenarioWipe = []step{
	{`fleet processes=3 limit="10/h burst 100" mode=strict`, "t=1.1s, N=3"},
	// p2 is the last to see a, and saw what p1 had used of it. p3 sees nothing.
	{"allow p1 key=a n=30", "redis allowed, remaining 70, after 1ms"},
	{"allow p2 key=a n=20", "redis allowed, remaining 50, after 1ms"},
	{"allow p2 key=b n=60", "redis allowed, remaining 40, after 1ms"},
	{"redis key=a", "level 50, debited 50"},
	{"redis key=b", "level 40, debited 60"},
	{"wipe"},
	{"redis key=a", "nothing"},
	// Nobody calls. By their next heartbeat, a second later at most, processes notice that Redis has forgotten the
	// last one, and sync their keys.
	{"wait until=2.3s", "t=2.3s"},
	// Of two views the lower level counts: 50 for a, not the 70 that p1 saw. Debited counts from the birth of the
	// new state.
	{"redis key=a", "level 50, debited 0"},
	{"redis key=b", "level 40, debited 0"},
	{"stats all resynced>=1", "p1: resynced>=1", "p2: resynced>=1", "p3: resynced 0"},
	// So p3 gets no more than what was left.
	{"allow p3 key=b n=40", "redis allowed, remaining 0, after 1ms"},
	{"redis key=b", "level 0, debited 40"},
	// Once more, and p2 calls before any heartbeat. Its view of b, 40, comes with its sync and is restored before
	// anything is granted; that p3 has taken these 40 since, only p3 can say. So p2 gets ten that are not there.
	{"wipe"},
	{"allow p2 key=b n=10", "redis allowed, remaining 30, after 1ms"},
	// Within the second p3 has said so: its level of 0, less these 10. That is debt, and refill comes back to it
	// first: 11 units of 6 minutes each until one can be had.
	{"wait until=3.3s", "t=3.3s"},
	{"redis key=b", "level -10, debited 10"},
	{"allow p1 key=b", "redis denied, retry in 1h5m58s, after 1ms"},
}

// A process that crashes takes with it what only it knew: at most C units that it had admitted and not paid, or a
// lease that it had not spent.
var scenarioCrash = []step{
	{`fleet processes=3 limit="10/h burst 100" mode=auto overshoot=20%`, "t=1.1s, N=3"},
	// C = 20% of 100, over N-1 = 2 others.
	{"wait until=2.1s", "t=2.1s"},
	{"stats p1 credit", "p1: credit 10"},
	{"allow p1 key=a n=2", "redis allowed, remaining 98, after 1ms"},
	// All of C at once. The sync that pays for it is on its way when p1 dies, and lost.
	{"allow p1 key=a n=10", "credit allowed, remaining 88"},
	{"crash p1"},
	{"wait 100ms", "t=2.201s"},
	// Twelve were admitted and two are counted. The difference is C, never more.
	{"redis key=a", "level 98, debited 2"},
	{"stats p1 admitted dropped", "p1: admitted 12, dropped 10"},
	// A lease was paid for before it is spent. p2 uses 70 units of another key, 30 of them on credit, and dies with
	// 4 leased units in hand. (The call for 40 makes its demand look unsteady, so little is leased to it.)
	{"allow p2 key=b n=40", "redis allowed, remaining 60, after 1ms"},
	{"allow p2 key=b times=30 every=20ms sum", "30 credit allowed"},
	{"wait 100ms", "t=2.882s"},
	{"stats p2 admitted held owed", "p2: admitted 70, held 4, owed 0"},
	{"crash p2"},
	// Redis has debited all 74. The 4 are wasted: that errs on the safe side. The ledger still counts them for a
	// while.
	{"redis key=b", "level 26, debited 74, ledger 4"},
	{"stats p2 expired dropped", "p2: expired 4, dropped 0"},
	// The dead are counted for 3 s after their last heartbeat, and until three counts agree: too small an N would
	// give too much credit.
	{"stats p3 fleet", "p3: fleet 3"},
	{"wait 7s", "t=9.882s"},
	{"stats p3 fleet", "p3: fleet 1"},
}

// Memory holds two keys here, and syncs are due after an hour. A key that owes is not forgotten before it has paid,
// and a process does not leave before.
var scenarioEviction = []step{
	{`fleet processes=1 limit="1/h burst 100" mode=deferred max-keys=2 sync-interval=1h`, "t=1.1s, N=1"},
	{"wait until=2.1s", "t=2.1s"},
	{"allow p1 key=a times=2", "redis allowed, remaining 99, after 1ms", "credit allowed, remaining 98"},
	{"allow p1 key=b times=3", "redis allowed, remaining 99, after 1ms", "2 × credit allowed, remaining 97"},
	// Each key's first call asked Redis. The other three units are owed.
	{"stats p1 keys owed", "p1: keys 2, owed 3"},
	{"redis key=a", "level 99, debited 1"},
	// Neither key can go for a third, which therefore asks Redis for this very call and leaves nothing in memory.
	// The two are told to pay, at the same time: one of the two messages has to open a connection.
	{"allow p1 key=c within=5ms", "redis allowed, remaining 99, within 5ms"},
	{"stats p1 keys refused evicted", "p1: keys 2, refused 1, evicted 0"},
	{"wait until=2.2s", "t=2.2s"},
	{"stats p1 owed paid", "p1: owed 0, paid 3"},
	{"redis key=a", "level 98, debited 2"},
	{"redis key=b", "level 97, debited 3"},
	// Now a, the least recently used, has to go.
	{"allow p1 key=d times=5", "redis allowed, remaining 99, after 1ms", "4 × credit allowed, remaining 95"},
	{"stats p1 keys evicted owed", "p1: keys 2, evicted 1, owed 4"},
	// A shutdown pays at once what was due in an hour.
	{"leave p1", "p1 left after 6ms"},
	{"stats p1 owed paid dropped", "p1: owed 0, paid 7, dropped 0"},
	{"redis key=d", "level 95, debited 5"},
}
