package redistest

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// pump carries one client connection over a link. It has four goroutines with one task each, so that no wait (for the
// network, for a delay, for Resume) blocks another:
//
//	client -> readRequests -> requests -> writeRequests -> server
//	client <- writeReplies <- replies  <- readReplies   <- server
//
// All four end when stop is called. Without it they end one after the other, as the two halves of a TCP connection do:
// the client's Close reaches Redis after the requests in flight, and Redis's Close reaches the client after the replies
// in flight.
type pump struct {
	link           *Link
	client, server conn
	requests       *queue[request]
	replies        *queue[reply]
	done           chan struct{}
	once           sync.Once

	mu      sync.Mutex
	waiting []waiter // one for each outstanding reply of Redis, oldest first
	mute    bool     // replies are lost from now on
}

// conn is a connection over TCP or in memory. CloseWrite tells Redis that no more requests will come. Replies stay
// readable. A full close of a socket with unread data would reset it, and Redis would drop requests that it has not read
// yet.
type conn interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// request is one delivery towards Redis.
type request struct {
	raw     []byte
	name    string // empty for a request that Redis skips without a reply
	verdict Verdict
	due     time.Time // zero: at once
	last    bool      // the client has closed; raw is empty
}

// reply is one delivery towards the client.
type reply struct {
	raw   []byte
	due   time.Time
	last  bool // close the connection; raw is empty
	reset bool // close it with a reset, as Redis did
}

// waiter is the treatment of the next reply. A waiter with hangUp stands for no reply: it closes the connection after
// the replies before it.
type waiter struct {
	verdict Verdict
	discard bool
	hangUp  bool
}

func newPump(l *Link, client, server conn) *pump {
	return &pump{
		link: l, client: client, server: server, done: make(chan struct{}),
		requests: newQueue[request](), replies: newQueue[reply](),
	}
}

func (p *pump) run() {
	var all sync.WaitGroup
	for _, task := range []func(){p.readRequests, p.writeRequests, p.readReplies, p.writeReplies} {
		all.Go(task)
	}
	all.Wait()
}

// stop ends the connection in both directions, with a reset if asked.
func (p *pump) stop(reset bool) {
	p.once.Do(func() {
		close(p.done)
		p.requests.stop()
		p.replies.stop()
		for _, c := range []conn{p.client, p.server} {
			if reset {
				c.SetLinger(0)
			}
			c.Close()
		}
	})
}

func (p *pump) readRequests() {
	r := bufio.NewReader(p.client)
	dead := false
	for {
		raw, cmd, err := readRequest(r)
		if err != nil {
			// A malformed request cannot be forwarded. It ends the connection, as in Redis.
			delay, _ := p.link.latency()
			p.requests.push(request{last: true, due: after(delay)})
			return
		}
		if dead {
			continue // read on, so that the client can finish writing
		}
		rq := request{raw: raw}
		if len(cmd) > 0 {
			v, ok := p.link.judge(cmd, p.done)
			if !ok {
				return
			}
			rq.name, rq.verdict, rq.due = strings.ToUpper(cmd[0]), v, after(v.request)
			// All later requests on the connection are lost.
			dead = v.fault == faultDropRequest || v.fault == faultDropReply && v.then == ThenClose
		}
		p.requests.push(rq)
	}
}

func (p *pump) writeRequests() {
	for {
		rq, ok := p.requests.pop()
		if !ok || !p.hold(rq.due) {
			return
		}
		if rq.last {
			p.server.CloseWrite()
			return
		}
		if rq.verdict.fault == faultDropRequest {
			if rq.verdict.then == ThenClose {
				p.expect(waiter{verdict: rq.verdict, hangUp: true})
			}
			continue
		}
		times := 1
		if rq.verdict.fault == faultDuplicate {
			times = 2
		}
		for i := range times {
			// Redis confirms subscriptions by pushes (RESP3) or messages (RESP2), one for each channel.
			if rq.name != "" && !strings.HasSuffix(rq.name, "SUBSCRIBE") {
				p.expect(waiter{verdict: rq.verdict, discard: i > 0})
			}
			if rq.name != "" {
				p.link.count(rq.name, Count{Forwarded: 1})
			}
			if _, err := p.server.Write(rq.raw); err != nil {
				return // readReplies sees the end as well, and closes the connection in order
			}
		}
	}
}

func (p *pump) readReplies() {
	r := bufio.NewReader(p.server)
	for {
		raw, err := readReply(r)
		if err != nil {
			_, delay := p.link.latency()
			reset := errors.Is(err, syscall.ECONNRESET)
			p.replies.push(reply{last: true, reset: reset, due: after(delay)})
			return
		}
		p.arrived(raw)
	}
}

func (p *pump) writeReplies() {
	gone := false
	for {
		rp, ok := p.replies.pop()
		if !ok || !p.hold(rp.due) {
			return
		}
		if rp.last {
			p.stop(rp.reset)
			return
		}
		if gone {
			continue
		}
		if _, err := p.client.Write(rp.raw); err != nil {
			// Not the end: requests in flight must still reach Redis.
			gone = true
		}
	}
}

// expect queues a waiter. It must be called before the write of its request.
func (p *pump) expect(w waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, w)
	p.hangUpIfDue()
}

// arrived matches a reply of Redis with the request it answers.
func (p *pump) arrived(raw []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isPush(raw) || len(p.waiting) == 0 {
		// Out of band, or a message of a RESP2 subscription.
		if !p.mute {
			_, delay := p.link.latency()
			p.replies.push(reply{raw: raw, due: after(delay)})
		}
		return
	}
	w := p.waiting[0]
	p.waiting = p.waiting[1:]
	switch {
	case w.verdict.fault == faultDropReply && w.verdict.then == ThenClose:
		p.replies.push(reply{last: true, due: after(w.verdict.reply)})
	case w.verdict.fault == faultDropReply:
		p.mute = true
	case !p.mute && !w.discard:
		p.replies.push(reply{raw: raw, due: after(w.verdict.reply)})
	}
	p.hangUpIfDue()
}

// hangUpIfDue needs mu.
func (p *pump) hangUpIfDue() {
	if len(p.waiting) > 0 && p.waiting[0].hangUp {
		p.replies.push(reply{last: true, due: after(p.waiting[0].verdict.reply)})
		p.waiting = nil // nothing follows a request that was dropped
	}
}

// hold waits until due and until the link is not paused. It returns false if the connection was stopped meanwhile.
func (p *pump) hold(due time.Time) bool {
	if d := time.Until(due); !due.IsZero() && d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.done:
			return false
		}
	}
	select {
	case <-p.link.open():
		return true
	case <-p.done:
		return false
	}
}

// after returns the time in d; the zero time for no delay, without a read of the clock.
func after(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// queue is an unbounded FIFO. It is not a buffered channel, because a full channel would stop the reader in front of
// it. A client that writes a whole pipeline before it reads could then never finish. The queue waits on a sync.Cond,
// which a synctest bubble counts as blocked, unlike a mutex.
type queue[T any] struct {
	mu      sync.Mutex
	changed sync.Cond
	items   []T
	stopped bool
}

func newQueue[T any]() *queue[T] {
	q := new(queue[T])
	q.changed.L = &q.mu
	return q
}

func (q *queue[T]) push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, item)
	q.changed.Signal()
}

// pop waits for an item. It returns false after stop, even if items are left.
func (q *queue[T]) pop() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.stopped {
		q.changed.Wait()
	}
	if q.stopped {
		return item, false
	}
	item = q.items[0]
	clear(q.items[:1]) // frees the bytes, because the array stays in memory
	q.items = q.items[1:]
	return item, true
}

func (q *queue[T]) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.changed.Broadcast()
}
