// Package accuracy is the lab. It runs scenario files (scenarios/*.txt) in the fleet
// simulator, compares every row with the bounds of its file, and writes the results to
// docs/lab as a table, as JSON and as plots.
//
//	make lab                                                      everything, into docs/lab
//	make lab-calls                                                the calls in flight, into docs/lab/calls.md
//	cd bench && go test ./accuracy -run '^TestLab$/fleet10' -lab -v   some of it, into the log
//
// A [Family] is a scenario file, a [Case] is one run of it, and a [Row] has the figures of a
// run. Every figure is a field of fleet.Report or a quotient of such fields. The plots are
// drawn from its timeline.
//
// Calls in flight have scenario files of their own (calls/*.txt), which run in
// internal/test/fleet: a [CallFamily], a [CallCase], a [CallRow].
//
// Two events at one instant of virtual time may happen in either order. So a figure can
// differ between two runs in its last digits.
//
// It runs under go test because testing/synctest needs a test. Without -lab the tests run
// only a few tiny scenarios.
package accuracy
