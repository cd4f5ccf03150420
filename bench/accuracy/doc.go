// Package accuracy is the lab. It runs scenario files in simulators of fleets, compares each run with the bounds
// of its file, and writes docs/lab.
//
//	make lab          scenarios/*.txt in internal/test/fleet, and those of the next two
//	make lab-calls    calls/*.txt in internal/test/fleet: calls in flight
//	make lab-regions  regions/*.txt in internal/test/fleet: a limit in several regions
//
// A [Lab] is a sort of scenario, a [Family] is a file, a [Case] is one run of it, and a [Row] has its figures. The
// plots are drawn from the timelines of the runs. README.md lists the words of the files.
//
// It runs under go test because testing/synctest needs a test. Without -lab the tests run only a few tiny scenarios.
package accuracy
