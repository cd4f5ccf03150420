// Package ratesync is the sync engine of package hybrid. It is not for applications: its signatures use types of
// internal packages.
//
// The engine sends ops to Redis in batches and hands the answers back. An [Item] supplies an op and receives the
// answer. The engine knows nothing of limits.
//
// A tag is a hash partition of the keys. A lane is a queue with at most one batch in flight. On a cluster each tag has
// a lane. On a single Redis one lane carries all tags. A batch is frozen when it is first sent. Until Redis answers,
// the lane sends the same content again under the same sequence number. So lost replies, time-outs and retries neither
// lose nor double the content of a batch. New units wait for the next batch. A key belongs to one lane, so it also has
// at most one sync in flight.
//
// A lane sends when its last batch is answered and an item is due. An urgent item is due at once, any other after the
// sync interval. That is group commit: while one batch is in flight, other items gather for the next one. A lane's
// goroutine ends when its queue is empty, so an idle engine costs nothing.
//
// Syncs that can wait take at most half of the time of one connection, however many there are; above that, they wait
// longer. The other half is for urgent syncs, and for the callers of the process, whose cores encode and decode the
// batches.
//
// Everything is bounded: an item is queued once, a batch has at most wire.MaxOps ops, and a lane keeps one frozen
// batch.
//
// The directory is sync/ and the package is ratesync, so that its files can import the standard library's sync without
// an alias.
package ratesync
