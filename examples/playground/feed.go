package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// feed pushes to all open pages, by server-sent events.
type feed struct {
	mu     sync.Mutex
	pages  map[chan []byte]struct{}
	closed bool
	left   time.Time // when the last page went
}

func newFeed() *feed { return &feed{pages: map[chan []byte]struct{}{}} }

// backlog is how many messages a page may be behind. One that is further gets
// disconnected, comes back by itself, and begins anew: no message is missing in
// between.
const backlog = 128

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

func (f *feed) open() (chan []byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false
	}
	page := make(chan []byte, backlog)
	f.pages[page] = struct{}{}
	return page, true
}

// serve is a page's connection. The first message is everything, made after
// the page was entered, so that the ones that follow miss nothing.
func (f *feed) serve(w http.ResponseWriter, r *http.Request, everything func() any) {
	page, ok := f.open()
	if !ok {
		http.Error(w, "the playground is ending", http.StatusServiceUnavailable)
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
	flush := http.NewResponseController(w)
	write := func(text []byte) bool {
		_, err := w.Write(text)
		return err == nil && flush.Flush() == nil
	}
	if !write([]byte("retry: 1000\n\n")) || !write(message("hello", everything())) {
		return
	}
	// Something now and then shows a proxy, and us, that the page is there.
	alive := time.NewTicker(20 * time.Second)
	defer alive.Stop()
	for {
		select {
		case text, ok := <-page:
			if !ok || !write(text) {
				return
			}
		case <-alive.C:
			if !write([]byte(": alive\n\n")) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
