package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// ErrReply is wrapped by every error about a reply that the scripts cannot have given.
var ErrReply = errors.New("wire: unreadable reply")

// ErrRefused is wrapped by the error of a batch that Redis read and did not apply. Redis will never apply it, so
// sending it again has no use.
var ErrRefused = errors.New("wire: batch refused")

// ErrFull is wrapped by the error of a limit of a key for which a limiter has no room.
var ErrFull = errors.New("wire: too many limits of keys")

// CrossSlot reports whether Redis did not apply a message because its keys are in several cluster slots. A client for a
// single Redis may reach a cluster: through a proxy, or as one node that has all slots.
func CrossSlot(err error) bool { return err != nil && strings.Contains(err.Error(), "CROSSSLOT") }

// Reply is the reply to a batch.
type Reply struct {
	Seen  bool // the batch was applied before; Answers are the old ones
	Stale bool // Redis has a later batch of this process; nothing was done
	// Refused: not all asks of an all-or-nothing batch fit, and nothing was done. Retry of an op is the time until it
	// and the ops before it on its key fit.
	Refused bool
	Gap     bool     // an earlier batch of this process is missing in Redis
	Epoch   int64    // µs of Redis time at which this tag's states began; 0 without an envelope
	Now     int64    // µs of Redis time
	Answers []Answer // one per op; none if Stale
}

const (
	schemaOps   = 1 // the answers are in the order of the ops
	schemaPlain = 2 // of plain asks that were decided like other ops: the answers are in the order of groups

	headInts   = 4
	answerInts = 10
	intBytes   = 24 // of an integer in a reply, with its line end

	maxRequestID = 128 // bytes that hybridlimit.WithRequestID keeps
)

// MaxReplyValues is the largest number of values in the reply of a script or function of package lua, for a batch of
// MaxOps ops or a page of MaxHistory entries, or a message of permits.
const MaxReplyValues = max(headInts+answerInts*MaxOps, historyHead+historyEach*MaxHistory, 1+heldInts*permits.MaxOps)

// MaxReplyBytes is the largest size of such a reply: its integers, and the escaped request id of each entry of a page,
// or the holders of each op of permits. The texts of a heartbeat need less: a directory, and some names.
const MaxReplyBytes = (1+MaxReplyValues)*intBytes + max(MaxHistory*escaped*maxRequestID, permits.MaxOps*maxHolders)

// maxReply is the largest number in a reply: 2⁵³, which stands for never, plus 2²¹ µs for the time (about 1 s) that a
// state stays frozen after Redis's clock stepped back. That many µs still fit into an int64 as ns.
const maxReply = 1<<53 + 1<<21

// DecodeReply reads the reply to a batch, in the form in which go-redis returns the result of EVALSHA. A reply of
// another shape is ErrReply.
func DecodeReply(raw any, ops []Op) (Reply, error) {
	if text, ok := raw.(string); ok {
		return decodePlain([]string{text}, ops)
	}
	list, ok := raw.([]any)
	if !ok {
		return Reply{}, fmt.Errorf("%w: %T instead of a list", ErrReply, raw)
	}
	if len(list) > 0 {
		if _, ok := list[0].(string); ok {
			return decodeTexts(list, ops)
		}
	}
	return decodeInts(list, ops)
}

func decodeTexts(list []any, ops []Op) (Reply, error) {
	texts := make([]string, len(list))
	for i, v := range list {
		text, ok := v.(string)
		if !ok {
			return Reply{}, fmt.Errorf("%w: element %d is a %T", ErrReply, i, v)
		}
		texts[i] = text
	}
	switch {
	case strings.HasPrefix(texts[0], "e"):
		return decodeShort(texts, ops)
	case texts[0] == headAll:
		return decodePlain(texts[1:], ops)
	case texts[0] == headNone:
		return decodeNone(texts[1:], ops)
	}
	return decodePlain(texts, ops)
}

// decodeInts reads a reply of integers.
func decodeInts(list []any, ops []Op) (Reply, error) {
	ints, ok := make([]int64, len(list)), false
	for i, v := range list {
		if ints[i], ok = v.(int64); !ok {
			return Reply{}, fmt.Errorf("%w: element %d is a %T", ErrReply, i, v)
		}
		if ints[i] > maxReply || ints[i] < -maxReply {
			return Reply{}, fmt.Errorf("%w: element %d is %d, out of range", ErrReply, i, ints[i])
		}
	}
	if len(ints) < headInts || ints[0] != schemaOps && ints[0] != schemaPlain {
		return Reply{}, fmt.Errorf("%w: %d integers without a header of schema %d or %d", ErrReply, len(ints), schemaOps, schemaPlain)
	}
	n, order := len(ops), []int(nil)
	if ints[0] == schemaPlain {
		if !allPlain(ops) {
			return Reply{}, fmt.Errorf("%w: answers in the order of a batch of another form", ErrReply)
		}
		order = slices.Concat(groups(ops)...)
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
	at := func(i int) int { return i } // the place of an op by that of its answer
	if order != nil {
		at = func(i int) int { return order[i] }
	}
	for i := range r.Answers {
		v := rest[i*answerInts:]
		a := Answer{
			Granted: v[0], Lease: v[1], Life: v[2], Level: v[3], Retry: v[4],
			Born: v[5], Cap: v[6], Delay: v[7], Refill: v[8], Ends: v[9],
		}
		if a.Delay < 0 {
			a.Delay, a.Dropped, a.Refused = 0, a.Delay%2 != 0, a.Delay < -1
		}
		if a.Life < 0 { // minus the generation of the lease in the ledger, or minus the window of a lease
			a.Gen, a.Life = -a.Life, algo.Generation
			if algo.KindOf(ops[at(i)].Limit.Algorithm) == algo.KindBucket {
				a.Life = algo.LeaseLife(a.Gen)
			}
		}
		r.Answers[at(i)] = a
		if v[0] < 0 || v[1] < 0 || v[4] < 0 || v[5] < 0 || v[6] < 0 || v[7] < -3 || v[8] < 0 || v[9] < 0 {
			return Reply{}, fmt.Errorf("%w: a negative number in the answer to op %d", ErrReply, i)
		}
	}
	return r, nil
}

// Check returns ErrReply for a reply that this batch cannot have got: one that grants more than was asked, or with
// flags that only other batches get.
func (r Reply) Check(env Envelope, ops []Op) error {
	if r.Refused || env.Seq == 0 && (r.Seen || r.Stale || r.Gap) {
		return fmt.Errorf("%w: it is for another kind of batch", ErrReply)
	}
	return r.checkGrants(ops)
}

// CheckAll is Check for a batch of EncodeAll.
func (r Reply) CheckAll(ops []Op) error {
	if r.Seen || r.Stale || r.Gap {
		return fmt.Errorf("%w: it is for another kind of batch", ErrReply)
	}
	return r.checkGrants(ops)
}

func (r Reply) checkGrants(ops []Op) error {
	for i, a := range r.Answers {
		if asked := ops[i].Asked(); a.Granted > asked {
			return fmt.Errorf("%w: %d units granted, but %d asked for, by op %d", ErrReply, a.Granted, asked, i)
		}
		if a.Lease > 0 && (ops[i].Div == 0 || a.Lease > ops[i].Limit.BurstSize()) {
			return fmt.Errorf("%w: %d units leased for op %d, more than it can lease", ErrReply, a.Lease, i)
		}
	}
	return nil
}
