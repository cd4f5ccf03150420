// Chaos injects faults into real Redis servers under the load of real processes, and
// checks each decision that the processes made meanwhile.
//
//	make chaos                                   every fault, into docs/reliability.md and bench/CHAOS.md
//	cd bench/chaos && go run . -run 'SIGKILL|OOM'   some, onto the screen
//	make soak                                    a quarter of an hour of faults
//
// A run is one fault on one topology. It has redis-server processes on loopback, a
// toxiproxy in this process in front of each server, and several clients. A client is
// this program again (see worker.go). Each client makes a hybrid.Limiter and obeys
// commands from its standard input. It writes every decision, every sync and every
// oversleep of its timer canary to its own file (history.go). The history of Redis is
// its append-only file. It holds every debit together with the envelope of the batch
// (ledger.go).
//
// At the quiet moments of a run, quiet.go stops the load and takes the books of the
// clients and of Redis. After the run, check.go and check_quiet.go compare the history
// and the books with the promises of the library. To show that each check can fail,
// check_test.go and check_quiet_test.go plant a violation of each kind. Some rows have a
// limiter with classes (faults_class.go). check_class.go checks these rows, and
// check_class_test.go plants its violations.
package main
