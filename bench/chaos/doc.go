// Chaos injects faults into real Redis servers under the load of real processes, and checks each decision that the
// processes made meanwhile.
//
//	make chaos                                      every fault, into docs/reliability.md and bench/chaos.json
//	cd bench/chaos && go run . -run 'SIGKILL|OOM'   some, onto the screen
//	make soak                                       a quarter of an hour of faults
//
// A run is one fault on one topology. It has redis-server processes on loopback, a toxiproxy in this process in front
// of each server (node.go, world.go), and several clients (client.go). A client is this program again: a hybrid.Limiter
// (worker.go), or a limit of calls in flight (worker_calls.go), that obeys orders. It writes every decision, every sync
// and every oversleep of its timer canary to its own file (history.go). The history of Redis is its append-only file
// (aof.go). It holds every debit together with the envelope of the batch (ledger.go).
//
// At the quiet moments of a run, quiet.go stops the load and takes the books of the clients and of Redis. After the
// run, the files check*.go compare the history and the books with the promises of the library. To show that each check
// can fail, their tests plant a violation of each kind.
//
// Two things are not here. There has been only one schema so far, so no version runs beside another; the states of
// "states of another schema" count as lost. And the loss, duplication and reordering of single messages, in every
// order, is for TestExactlyOnce.
package main
