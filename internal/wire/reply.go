package wire

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// ErrReply is wrapped by every error about a reply that the library cannot
// have given.
var ErrReply = errors.New("wire: unreadable reply")

// ErrRefused is wrapped by the error of a batch that Redis read and did not
// apply. Redis never applies it: sending it again does not help.
var ErrRefused = errors.New("wire: batch refused")

// Reply is what a batch got.
type Reply struct {
	Seen    bool     // the batch had been applied before; these are its old answers
	Stale   bool     // a later batch of this process was there: nothing was done
	Refused bool     // not all asks fit, of a batch that wants all or nothing: nothing was done, and Retry of an op is when it and those before it on its key would fit
	Gap     bool     // an earlier batch of this process is missing in Redis
	Epoch   int64    // when this tag's states began, µs of Redis time; 0 without envelope
	Now     int64    // µs of Redis time
	Answers []Answer // one per op; none when stale
}

const (
	headInts   = 4
	answerInts = 10
	intBytes   = 24 // of an integer in a reply, its line end included

	maxRequestID = 128 // bytes that hybridlimit.WithRequestID keeps
)

// MaxReplyValues is the most values that a script or function of package lua
// answers with, to a batch of MaxOps ops or a page of MaxHistory entries.
const MaxReplyValues = max(headInts+answerInts*MaxOps, historyHead+historyEach*MaxHistory)

// MaxReplyBytes is the most bytes that such an answer takes: its integers, and
// the escaped request id of each entry of a page.
const MaxReplyBytes = (1+MaxReplyValues)*intBytes + MaxHistory*escaped*maxRequestID

// maxReply is the largest number that the library answers with: 2⁵³, which
// stands for never, and the second or so for which a clock that stepped back
// keeps a state frozen. µs up to it are ns in an int64.
const maxReply = 1<<53 + 1<<21

// DecodeReply reads the reply to a batch of n ops: what EVALSHA returned, as
// go-redis gives it. It trusts nothing: a reply of another shape is ErrReply.
func DecodeReply(raw any, n int) (Reply, error) {
	list, ok := raw.([]any)
	if !ok {
		return Reply{}, fmt.Errorf("%w: %T instead of a list", ErrReply, raw)
	}
	ints := make([]int64, len(list))
	for i, v := range list {
		if ints[i], ok = v.(int64); !ok {
			return Reply{}, fmt.Errorf("%w: element %d is a %T", ErrReply, i, v)
		}
		if ints[i] > maxReply || ints[i] < -maxReply {
			return Reply{}, fmt.Errorf("%w: element %d is %d, out of range", ErrReply, i, ints[i])
		}
	}
	if len(ints) < headInts || ints[0] != 1 {
		return Reply{}, fmt.Errorf("%w: no header of schema 1 in %d integers", ErrReply, len(ints))
	}
	status := ints[1]
	if status < 0 || status > 7 || status == 7 {
		return Reply{}, fmt.Errorf("%w: status %d", ErrReply, status)
	}
	r := Reply{Seen: status%4 == 1, Stale: status%4 == 2, Refused: status == 3, Gap: status >= 4, Epoch: ints[2], Now: ints[3]}
	rest := ints[headInts:]
	if r.Stale {
		n = 0
	}
	if len(rest) != n*answerInts {
		return Reply{}, fmt.Errorf("%w: %d integers for %d ops", ErrReply, len(rest), n)
	}
	r.Answers = make([]Answer, n)
	for i := range r.Answers {
		v := rest[i*answerInts:]
		a := Answer{Granted: v[0], Lease: v[1], Life: v[2], Level: v[3], Retry: v[4], Born: v[5], Cap: v[6], Delay: v[7], Refill: v[8], Ends: v[9]}
		if a.Delay == -1 {
			a.Delay, a.Dropped = 0, true
		}
		if a.Life < 0 { // the generation that the ledger holds it in
			a.Gen, a.Life = -a.Life, algo.MaxLease
		}
		r.Answers[i] = a
		if v[0] < 0 || v[1] < 0 || v[4] < 0 || v[5] < 0 || v[6] < 0 || v[7] < -1 || v[8] < 0 || v[9] < 0 {
			return Reply{}, fmt.Errorf("%w: negative answer for op %d", ErrReply, i)
		}
	}
	return r, nil
}

// Check refuses a reply that this batch cannot have got: more than was asked
// for, or what only a batch with an envelope is told.
func (r Reply) Check(env Envelope, ops []Op) error {
	if r.Refused || env.Seq == 0 && (r.Seen || r.Stale || r.Gap) {
		return fmt.Errorf("%w: of another kind of batch", ErrReply)
	}
	return r.checkGrants(ops)
}

// CheckAll is Check for what EncodeAll made.
func (r Reply) CheckAll(ops []Op) error {
	if r.Seen || r.Stale || r.Gap {
		return fmt.Errorf("%w: of another kind of batch", ErrReply)
	}
	return r.checkGrants(ops)
}

func (r Reply) checkGrants(ops []Op) error {
	for i, a := range r.Answers {
		var asked int64
		for _, n := range ops[i].Asks {
			asked += n
		}
		if a.Granted > asked {
			return fmt.Errorf("%w: %d units granted of %d, for op %d", ErrReply, a.Granted, asked, i)
		}
		if a.Lease > 0 && (ops[i].Div == 0 || a.Lease > ops[i].Limit.BurstSize()) {
			return fmt.Errorf("%w: %d units leased, for op %d", ErrReply, a.Lease, i)
		}
	}
	return nil
}
