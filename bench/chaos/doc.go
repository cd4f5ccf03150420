// Chaos takes real Redis servers away from real processes, in every way that
// the list of faults knows, and checks what each process decided meanwhile.
//
//	make chaos                                   every fault, into docs/reliability.md
//	cd bench/chaos && go run . -run 'SIGKILL|OOM'   some, onto the screen
//	make soak                                    a quarter of an hour of faults
//
// A run is one fault on one topology: redis-server processes on loopback, a
// toxiproxy in this process in front of each, and several clients, which are
// this program again (see worker.go). Each client makes a hybrid.Limiter, is
// paced by command over its standard input, and writes every decision, every
// sync and every oversleeping of its timer canary to a file of its own
// (history.go). Redis's side of the history is its append-only file, which
// holds every debit with the envelope that it came in (ledger.go).
//
// When the run is over, check.go holds the history against what the library
// promises. A check that nothing can fail is worth nothing: check_test.go
// plants a violation of each kind.
package main
