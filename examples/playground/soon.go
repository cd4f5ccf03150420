package main

import (
	"sync"
	"time"
)

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
	if s.timer != nil || s.ended {
		s.mu.Unlock()
		return
	}
	if wait := s.every - time.Since(s.last); wait > 0 {
		s.timer = time.AfterFunc(wait, s.now)
		s.mu.Unlock()
		return
	}
	s.last = time.Now()
	s.mu.Unlock()
	s.do()
}

// now is called when the interval has passed.
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
