package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// feed pushes to all open pages, by server-sent events.
type feed struct {
	patience time.Duration // with a page that reads slowly

	mu     sync.Mutex
	pages  map[chan []byte]struct{}
	closed bool
	left   time.Time // when the last page went
}

func newFeed() *feed { return &feed{patience: patience, pages: map[chan []byte]struct{}{}} }

const (
	// backlog is how many messages a page may be behind. One that is further
	// behind is disconnected, comes back by itself, and begins with all that is
	// known then: it has missed what was pushed for a moment only, which is what
	// it could not have drawn.
	backlog = 128
	// maxPages is how many may be open: far more than anybody looks at.
	maxPages = 64
	// alive is how often a page hears something, at least. It takes two misses
	// for a loss.
	alive = 20 * time.Second
)

var (
	errTooManyPages = fmt.Errorf("playground: %d pages are open already: close some", maxPages)
	errEnding       = errors.New("playground: it is ending")
)

// send pushes v under a name to all pages.
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
	if err != nil { // our own types, without NaN
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

// watched says whether a page is open, or was a moment ago: a reload is no
// absence.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pages) > 0 || time.Since(f.left) < 5*time.Second
}

// close ends all pages' connections, and refuses new ones.
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
	page := make(chan []byte, backlog)
	f.pages[page] = struct{}{}
	return page, nil
}

// serve is a page's connection. The first message is everything, made after
// the page was entered, so that the ones that follow miss nothing.
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
		_ = conn.SetWriteDeadline(time.Now().Add(f.patience)) // fails where no connection is to be waited for
		_, err := w.Write(text)
		return err == nil && conn.Flush() == nil
	}
	defer func() { _ = conn.SetWriteDeadline(time.Time{}) }() // the connection may have another request
	if !write([]byte("retry: 1000\n\n")) || !write(message("hello", everything())) {
		return
	}
	// Something now and then shows the page that we are there, and us that it is.
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
