// Package ratesync decides who syncs with Redis when. It knows nothing of
// limits: it moves ops from whatever has something to say (a [Node]) to Redis
// and answers back, in batches.
//
// Each tag has a lane, and each lane at most one batch on its way. A batch is
// frozen when it is first sent: until Redis has answered, it is sent again
// with the same content under the same sequence number, so that lost replies,
// time-outs and retries neither lose nor double what it carries, and new units
// wait for the next batch. A key lives in one lane, so it too has one sync on
// its way at most.
//
// A lane sends when its last batch is back and some node is due: at once for
// an urgent one, after the sync interval for the rest. That is group commit:
// while one batch travels, everything else gathers for the next. A lane's
// goroutine ends when nothing is queued, so an idle engine costs nothing.
//
// What can wait takes half of the time of one connection at most, however much
// there is of it; then it waits for longer. Half is for what cannot wait, and for
// the callers of the process, whose cores encode and decode all this.
//
// Everything is bounded: a node is queued once, a batch has at most
// wire.MaxOps ops, and a lane keeps one frozen batch.
//
// The directory is sync/ and the package ratesync, so that the standard
// library's sync needs no alias inside it.
package ratesync
