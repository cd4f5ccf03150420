// Package shed protects one process from more calls than it can run at once: when a dependency is slow, it sheds the
// least important calls first. A rate limit does not see this overload, because the rate has not changed.
//
//	shedder, err := shed.New(shed.Config{
//		Classes:     []string{"critical", "write", "read", "test"}, // the most important first
//		Healthy:     200 * time.Millisecond,                        // calls of a healthy process take less
//		MaxInFlight: 80,                                            // of a pool of 100 connections
//	})
//	...
//	permit, res, err := shedder.Acquire(ctx, "read")
//	if err != nil {
//		return err // the shedder is closed, or ctx has ended
//	}
//	if !res.Allowed {
//		return retryAfter(res.RetryAfter)
//	}
//	defer permit.Release()
//
// Packages httplimit and grpclimit ask a Shedder after their limits (httplimit.Config.Shedder,
// grpclimit.Config.Shedder).
//
// # Promises
//
//   - A call of the first class is never shed and never waits. If these calls alone
//     are too many, a Shedder does not help.
//   - A class is shed wholly before a call of the class above is shed. There is one
//     exception: while no place is free at all, calls of every class below the first
//     are shed after MaxWait. Even then no call takes a place while a call of a
//     class above waits.
//   - Calls below the first class run at most MaxInFlight at once.
//   - The part that is shed without a wait rises by at most Step in a second. It rises
//     only if places have been scarce for 5 s.
//   - While most places are free, that part falls by at least Step in a second. So a
//     class comes back at least as fast as it was shed, and within about 6 s.
//
// # How it works
//
// The adaptive limiter of failsafe-go follows the durations of calls and gives a limit for the calls that run at once.
// A free place goes to the waiting call of the most important class. A call waits at most MaxWait.
//
// Ten times a second the shed part of the calls below the first class changes. The calls with the lowest levels are
// shed. Each class has its own range of levels, as the priorities of failsafe-go have, so the last class is shed first.
//
//   - The part rises if a call found no place, and places have been scarce for 5 s.
//     A shorter overload sheds calls after their wait only, so a dependency that
//     flaps sheds nothing while it is well.
//   - It falls while places are plenty, twice as fast after every 2 s. Places are
//     plenty once every call of 0.2 s has found one, and these calls found as much
//     room as ten calls of an empty process.
//   - While places are scarce, it falls if no call was shed after its wait for a
//     second, and a place is free now.
//
// While more than one in ten calls takes longer than Healthy, the limit does not rise. Otherwise failsafe-go would take
// a long incident for the normal state. When fewer are slower again, the limit begins anew at MaxInFlight. Decision
// 0048 has the facts about failsafe-go behind this package, and decision 0057 the rules of the shed part.
//
// # Time
//
// Durations come from the monotonic clock, so steps of the wall clock change nothing. All waiting uses package time, so
// a Shedder works with the clock of testing/synctest; close it before the test ends.
package shed
