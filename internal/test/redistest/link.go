package redistest

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Link is the connection between clients and one Redis. It can fail on demand. It exists as a [Proxy] (real sockets) or
// a [MemLink] (inside a bubble). All methods are safe for concurrent use, and none waits for traffic.
type Link struct {
	dial   func(context.Context) (net.Conn, error) // to Redis
	ctx    context.Context                         // ends with Close; for dials
	cancel context.CancelFunc

	// turn is held while a script runs. It is a channel because a contended mutex would stop a bubble's clock while a
	// script sleeps.
	turn chan struct{}

	mu      sync.Mutex
	script  Script
	asked   int // requests since the script was set
	request time.Duration
	reply   time.Duration
	paused  bool
	gate    chan struct{} // closed unless paused
	closed  bool
	pumps   map[*pump]struct{}
	counts  map[string]Count
	running sync.WaitGroup // pumps; Add only under mu and before closed
}

// Count is the number of requests of one command on a link.
type Count struct {
	// Seen is the number of requests that the link has read, without those behind a request whose verdict ends all
	// later ones on its connection.
	Seen int
	// Forwarded is the number of requests written to Redis: Seen without dropped and held requests, plus duplicates.
	Forwarded int
}

var errLinkClosed = errors.New("redistest: link is closed")

func newLink(dial func(context.Context) (net.Conn, error)) *Link {
	l := &Link{
		dial:   dial,
		turn:   make(chan struct{}, 1),
		gate:   make(chan struct{}),
		pumps:  make(map[*pump]struct{}),
		counts: make(map[string]Count),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	close(l.gate)
	return l
}

// Script sets the script that decides on each request; nil forwards everything. It applies to requests read from now
// on, on old connections too.
func (l *Link) Script(s Script) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.script, l.asked = s, 0
}

// Latency sets the delay of every request and every reply, in addition to the delay that the script adds. It is the
// latency of a link, not of a command: requests pipelined together arrive together. Zero, the default, adds nothing.
func (l *Link) Latency(request, reply time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request, l.reply = request, reply
}

// Pause stops all delivery, ends of connections included, as if the other host hangs or the network drops packets
// silently. New connections are still accepted, as the kernel does for a stopped process.
func (l *Link) Pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.paused {
		l.paused, l.gate = true, make(chan struct{})
	}
}

// Resume delivers in order the data that [Link.Pause] held back. This includes requests of clients that have closed
// their connection meanwhile.
func (l *Link) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		l.paused = false
		close(l.gate)
	}
}

// CutAll resets every connection now. All data in flight is lost. New connections may follow.
func (l *Link) CutAll() {
	l.mu.Lock()
	pumps := slices.Collect(maps.Keys(l.pumps))
	l.mu.Unlock()
	for _, p := range pumps {
		p.stop(true)
	}
}

// Count returns the count of the named command, in upper or lower case.
func (l *Link) Count(command string) Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[strings.ToUpper(command)]
}

// Counts returns all counts, by command in upper case.
func (l *Link) Counts() map[string]Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// close resets every connection and waits until every goroutine of the link has ended.
func (l *Link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.CutAll()
	l.running.Wait()
}

// carry pumps between two connections until both have ended, and owns them.
func (l *Link) carry(client, server net.Conn) error {
	p := newPump(l, client.(conn), server.(conn))
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		p.stop(true)
		return errLinkClosed
	}
	l.pumps[p] = struct{}{}
	l.running.Add(1)
	l.mu.Unlock()
	go func() {
		defer l.running.Done()
		p.run()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pumps, p)
	}()
	return nil
}

// judge asks the script about a request and adds the link's latency. It returns false if the connection ended while the
// script decided on another request.
func (l *Link) judge(cmd []string, done <-chan struct{}) (Verdict, bool) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-done:
		return Verdict{}, false
	}
	l.count(cmd[0], Count{Seen: 1})
	l.mu.Lock()
	script, n := l.script, l.asked
	l.asked++
	l.mu.Unlock()

	var v Verdict
	if script != nil {
		v = script(n, cmd)
	}
	request, reply := l.latency()
	return v.Late(request, reply), true
}

// count adds to the count of a command.
func (l *Link) count(cmd string, more Count) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := strings.ToUpper(cmd)
	c := l.counts[name]
	l.counts[name] = Count{c.Seen + more.Seen, c.Forwarded + more.Forwarded}
}

func (l *Link) latency() (request, reply time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.request, l.reply
}

// open returns a channel that is closed while the link is not paused.
func (l *Link) open() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}
