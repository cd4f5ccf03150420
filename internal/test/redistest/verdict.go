package redistest

import (
	"fmt"
	"strings"
	"time"
)

// Verdict is the treatment of one request and its reply on a link. The zero value forwards both. [DropRequest],
// [DropReply], [Duplicate], [Delay] and [DelayReply] make others, and [Verdict.Late] combines them with delays.
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

// Then is the state of the connection after a drop. With ThenClose, the client notices the loss at once. With ThenHang,
// it notices the loss only by its own time-out.
type Then uint8

const (
	// ThenClose closes the connection at the time at which the dropped request or reply would have been delivered.
	// Requests pipelined behind it are lost too.
	ThenClose Then = iota
	// ThenHang leaves the connection open and silent. See [DropRequest] and [DropReply] for which direction is dead.
	ThenHang
)

// Script decides on each request. n counts the requests of the link since the script was set, from 0, handshakes
// (HELLO, CLIENT) included. cmd is the command and its arguments and must not be modified. Calls are never concurrent,
// so a script may have state, such as a seeded random source. A slow script delays the whole link.
type Script func(n int, cmd []string) Verdict

// Forward passes request and reply untouched; it is the zero Verdict.
func Forward() Verdict { return Verdict{} }

// DropRequest loses the request: Redis never sees it. Replies to earlier requests are still delivered. With ThenHang,
// later requests on the connection do not reach Redis either, because TCP delivers in order or not at all.
func DropRequest(then Then) Verdict { return Verdict{fault: faultDropRequest, then: then} }

// DropReply loses the reply: Redis has executed the request, and the client cannot know this. With ThenHang, the
// connection is dead towards the client only: requests pipelined behind this one are executed, and their replies are
// lost too. DropReply has no effect on SUBSCRIBE and similar commands, which have no reply of their own.
func DropReply(then Then) Verdict { return Verdict{fault: faultDropReply, then: then} }

// Duplicate sends the request to Redis twice in a row, and returns the first reply. For a copy that arrives late, use
// Delay with more than the client's read time-out: the client retries, and the first request still arrives.
func Duplicate() Verdict { return Verdict{fault: faultDuplicate} }

// Delay holds the request for d before Redis sees it. The order on a connection stays, so requests behind it wait as
// well. If the client gives up meanwhile, the request still reaches Redis, as packets in flight do.
func Delay(d time.Duration) Verdict { return Verdict{request: d} }

// DelayReply holds the reply for d after Redis sent it.
func DelayReply(d time.Duration) Verdict { return Verdict{reply: d} }

// Late returns v with the given additional delays of its request and its reply.
func (v Verdict) Late(request, reply time.Duration) Verdict {
	v.request += request
	v.reply += reply
	return v
}

// OnNth returns a script that gives verdict v to the nth request, from 0, of the named command (in upper or lower
// case), and forwards all other requests. Unlike the n of a Script, nth does not count handshakes.
func OnNth(command string, nth int, v Verdict) Script {
	seen := 0
	return func(_ int, cmd []string) Verdict {
		if strings.EqualFold(cmd[0], command) {
			if seen++; seen == nth+1 {
				return v
			}
		}
		return Forward()
	}
}

// OnEvery returns a script that gives verdict v to every request of the named command (in upper or lower case), and
// forwards all other requests.
func OnEvery(command string, v Verdict) Script {
	return func(_ int, cmd []string) Verdict {
		if strings.EqualFold(cmd[0], command) {
			return v
		}
		return Forward()
	}
}

// String returns the verdict as text for logs and names of tests: "drop reply, hang".
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
