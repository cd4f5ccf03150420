// Command testrun runs go test for make test and for the gate, and tells a defect from a busy machine:
//
//	testrun [-concurrent=with|without|only] [-seconds] [-failures DIR] [-until TIME] DIR [go test flags] packages
//
// It prints a line for each package, in the order in which they are named, the output of the failed tests, and "N
// passed, N failed, N skipped". Without -seconds two runs without a failure print the same.
//
// A failed test that is pure is a failure. So is a data race, a package that does not compile, and a test binary that
// ends early. Any other failed test runs again three times, alone. A test is pure if its file imports none of the
// packages in worldly: it depends on no clock, scheduler, network or process. If all three runs pass, the status is 0,
// and the last line is "passed only alone: " and the names. With TESTRUN_ALONE set, the names are also appended to that
// file, so that a longer run can repeat them in its own last line.
//
// The tests with concurrent callers stand in files *_concurrent_test.go. -concurrent=only runs them and no others, for
// a run under the race detector; -concurrent=without runs all others.
//
// For make search, -failures writes a file for each failed test, with revision, seed and output, and runs nothing
// again. -until ends the run at a time; the status is then 3, or 1 if a test had failed.
package main
