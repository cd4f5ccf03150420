package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// feed pushes messages to all open pages by server-sent events.
type feed struct {
	patience time.Duration // the longest wait for a slow page

	mu     sync.Mutex
	pages  map[chan []byte]struct{}
	closed bool
	first  time.Time // until then, the load does not wait for the first page
	left   time.Time // when the last page was closed
}

func newFeed() *feed {
	return &feed{patience: patience, pages: map[chan []byte]struct{}{}, first: time.Now().Add(firstPage)}
}

const (
	// backlog is the number of messages that a page may be behind. A page that is further behind is disconnected. It
	// reconnects by itself and starts with the current state, so it misses only updates that it could not have drawn in
	// time.
	backlog = 128
	// maxPages is the largest number of open pages, far more than anybody needs.
	maxPages = 64
	// alive is the longest interval between two messages to a page. The page assumes a loss after two missed messages.
	alive = 20 * time.Second
	// firstPage is the time for which the load runs before a page is opened, so that the first page begins with a
	// history.
	firstPage = 2 * time.Minute
)

var (
	errTooManyPages = fmt.Errorf("playground: %d pages are open already: close some", maxPages)
	errEnding       = errors.New("playground: the program is ending")
)

// send pushes v with a name to all pages.
func (f *feed) send(name string, v any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pages) == 0 {
		return
	}
	text := message(name, v)
	for page := range f.pages {
		select {
		case page <- text:
		default:
			f.drop(page)
		}
	}
}

func message(name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // cannot happen: our own types, without NaN
		panic(err)
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data)
}

// drop is called with f.mu held.
func (f *feed) drop(page chan []byte) {
	if _, ok := f.pages[page]; ok {
		delete(f.pages, page)
		close(page)
		f.left = time.Now()
	}
}

// watched reports whether a page is open, was open a moment ago, or may be opened for the first time in a moment. A
// reload must not count as an absence.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pages) > 0 || time.Since(f.left) < 5*time.Second || time.Now().Before(f.first)
}

// close ends the connections of all pages, and refuses new ones.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for page := range f.pages {
		f.drop(page)
	}
}

func (f *feed) open() (chan []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, errEnding
	case len(f.pages) >= maxPages:
		return nil, errTooManyPages
	}
	f.first = time.Time{}
	page := make(chan []byte, backlog)
	f.pages[page] = struct{}{}
	return page, nil
}

// serve handles the connection of a page. The first message is the whole state. It is made after the page was
// registered, so that the page misses no later message.
func (f *feed) serve(w http.ResponseWriter, r *http.Request, everything func() any) {
	page, err := f.open()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.drop(page)
	}()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	conn := http.NewResponseController(w)
	write := func(text []byte) bool {
		_ = conn.SetWriteDeadline(time.Now().Add(f.patience)) // fails only without a connection, and then there is no wait
		_, err := w.Write(text)
		return err == nil && conn.Flush() == nil
	}
	defer func() { _ = conn.SetWriteDeadline(time.Time{}) }() // the connection may get another request
	if !write([]byte("retry: 1000\n\n")) || !write(message("hello", everything())) {
		return
	}
	// A regular message lets the page notice that the server has gone, and lets the server notice that the page has
	// gone.
	beat := time.NewTicker(alive)
	defer beat.Stop()
	for {
		select {
		case text, ok := <-page:
			if !ok || !write(text) {
				return
			}
		case <-beat.C:
			if !write(message("alive", struct{}{})) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// pushEvery is the shortest interval between two pushes of a card: as often as pages draw.
const pushEvery = 50 * time.Millisecond

// soon calls do when asked: at once, or, if the last call is more recent than every, after that interval. All requests
// in between are one call.
type soon struct {
	every time.Duration
	do    func()

	mu    sync.Mutex
	last  time.Time
	timer *time.Timer // nil: no call is pending
	ended bool
}

func (s *soon) ask() {
	s.mu.Lock()
	wait := s.every - time.Since(s.last)
	switch {
	case s.timer != nil || s.ended:
	case wait > 0:
		s.timer = time.AfterFunc(wait, s.now)
	default:
		s.last = time.Now()
		defer s.now()
	}
	s.mu.Unlock()
}

// now is also called when the interval has passed.
func (s *soon) now() {
	s.mu.Lock()
	s.timer, s.last = nil, time.Now()
	ended := s.ended
	s.mu.Unlock()
	if !ended {
		s.do()
	}
}

// end drops a pending call.
func (s *soon) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
