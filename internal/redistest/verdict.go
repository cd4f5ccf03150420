package redistest

import (
	"fmt"
	"strings"
	"time"
)

// Verdict is what a link does with one request and its reply. The zero value
// forwards both. Make others with [DropRequest], [DropReply], [Duplicate],
// [Delay] and [DelayReply], and combine with [Verdict.Late].
type Verdict struct {
	fault   fault
	then    Then
	request time.Duration
	reply   time.Duration
}

type fault uint8

const (
	faultNone fault = iota
	faultDropRequest
	faultDropReply
	faultDuplicate
)

// Then says what becomes of the connection after something was dropped on it.
// A client learns of the loss at once in one case, and only by a time-out of
// its own in the other.
type Then uint8

const (
	// ThenClose closes the connection when what was dropped would have been
	// delivered. Requests pipelined behind it are lost with it.
	ThenClose Then = iota
	// ThenHang leaves the connection open and silent. See [DropRequest] and
	// [DropReply] for which direction is dead.
	ThenHang
)

// Script decides on each request. n counts the requests of the link since the
// script was set, from 0, handshakes (HELLO, CLIENT) included; cmd is the
// command and its arguments, not to be modified. Calls are never concurrent,
// so a script may hold state such as a seeded random source. A slow script
// holds up the whole link.
type Script func(n int, cmd []string) Verdict

// Forward passes request and reply untouched; it is the zero Verdict.
func Forward() Verdict { return Verdict{} }

// DropRequest loses the request: Redis never sees it. Replies to requests
// before it are still delivered. With ThenHang nothing that is sent later on
// the connection reaches Redis either, since TCP delivers in order or not at
// all.
func DropRequest(then Then) Verdict { return Verdict{fault: faultDropRequest, then: then} }

// DropReply loses the reply: Redis has executed the request and the client
// cannot know. With ThenHang the connection is dead towards the client only:
// requests pipelined behind this one are executed, and their replies lost too.
// It has no effect on SUBSCRIBE and its kin, which have no reply of their own.
func DropReply(then Then) Verdict { return Verdict{fault: faultDropReply, then: then} }

// Duplicate sends the request to Redis twice, back to back, and returns the
// first reply. For a copy that arrives late, use Delay beyond the client's
// read time-out: the client retries, and the first request still arrives.
func Duplicate() Verdict { return Verdict{fault: faultDuplicate} }

// Delay holds the request for d before Redis sees it. Order on a connection is
// kept, so requests behind it wait as well. A request whose client gave up
// meanwhile still reaches Redis, as packets in flight do.
func Delay(d time.Duration) Verdict { return Verdict{request: d} }

// DelayReply holds the reply for d after Redis sent it.
func DelayReply(d time.Duration) Verdict { return Verdict{reply: d} }

// Late returns v with its request and its reply held for so much longer.
func (v Verdict) Late(request, reply time.Duration) Verdict {
	v.request += request
	v.reply += reply
	return v
}

// OnNth gives verdict v to the nth request, from 0, of the named command (in
// any case), and forwards everything else. Unlike the count that a Script is
// passed, it is not moved by handshakes.
func OnNth(command string, nth int, v Verdict) Script {
	seen := 0
	return func(_ int, cmd []string) Verdict {
		if !strings.EqualFold(cmd[0], command) {
			return Forward()
		}
		seen++
		if seen-1 != nth {
			return Forward()
		}
		return v
	}
}

// OnEvery gives verdict v to every request of the named command (in any case),
// and forwards everything else.
func OnEvery(command string, v Verdict) Script {
	return func(_ int, cmd []string) Verdict {
		if strings.EqualFold(cmd[0], command) {
			return v
		}
		return Forward()
	}
}

// String names the verdict for logs and failing cases: "drop reply, hang".
func (v Verdict) String() string {
	s := [...]string{"forward", "drop request", "drop reply", "duplicate"}[v.fault]
	if v.fault == faultDropRequest || v.fault == faultDropReply {
		s += [...]string{", close", ", hang"}[v.then]
	}
	if v.request > 0 {
		s += fmt.Sprintf(", request +%s", v.request)
	}
	if v.reply > 0 {
		s += fmt.Sprintf(", reply +%s", v.reply)
	}
	return s
}

// endsRequests reports whether nothing behind this request reaches Redis on
// the same connection.
func (v Verdict) endsRequests() bool {
	return v.fault == faultDropRequest || v.fault == faultDropReply && v.then == ThenClose
}
