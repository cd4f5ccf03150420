package main

import (
	"sync"
	"time"
)

// pushEvery is how often a card is pushed at most: as often as pages draw.
const pushEvery = 50 * time.Millisecond

// soon does something when asked to: at once, or, if it did a moment ago, when
// that is no moment any more. However often it is asked meanwhile is once.
type soon struct {
	every time.Duration
	do    func()

	mu    sync.Mutex
	last  time.Time
	timer *time.Timer // nil: nothing is to be done
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

// now is when the time has come.
func (s *soon) now() {
	s.mu.Lock()
	s.timer, s.last = nil, time.Now()
	ended := s.ended
	s.mu.Unlock()
	if !ended {
		s.do()
	}
}

// end drops what is to be done yet.
func (s *soon) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
