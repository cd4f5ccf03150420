// Package accuracy is the lab: it runs scenario files (scenarios/*.txt) over
// the fleet simulator, holds every row against the bounds that its file asks
// for, and writes what came of it to docs/lab as a table, as JSON and as plots.
//
//	make lab                                                      everything, into docs/lab
//	cd bench && go test ./accuracy -run '^TestLab$/fleet10' -lab -v   some of it, into the log
//
// A [Family] is a scenario file, a [Case] one run of it, a [Row] the figures
// of a run. Every figure is a field of fleet.Report or a quotient of such
// fields; what is drawn follows from its timeline.
//
// It runs under go test because testing/synctest needs a test. Without -lab
// the tests run a few tiny scenarios only.
package accuracy
