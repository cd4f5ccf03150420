package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// fleet is the parent's side of the worker processes.
type fleet struct {
	workers []*child
	news    chan news
}

// news is what a worker says, or that it has ended.
type news struct {
	process int // from 1
	message
	ended bool
	err   error // how it ended
}

func startFleet(j job) (*fleet, error) {
	f := &fleet{news: make(chan news, 64)}
	arg, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	for p := 1; p <= j.Processes; p++ {
		w, err := startChild(roleWorker, string(arg))
		if err != nil {
			f.end()
			return nil, err
		}
		f.workers = append(f.workers, w)
		go f.read(p, w)
	}
	return f, nil
}

func (f *fleet) read(process int, w *child) {
	lines := bufio.NewScanner(w.out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		n := news{process: process}
		if err := json.Unmarshal(lines.Bytes(), &n.message); err != nil {
			n.message = message{Kind: kindFailed, Error: fmt.Sprintf("unreadable message %q", lines.Bytes())}
		}
		f.news <- n
	}
	<-w.exited
	f.news <- news{process: process, ended: true, err: w.err}
}

// start tells all workers when the load begins.
func (f *fleet) start(at time.Time) {
	for _, w := range f.workers {
		fmt.Fprintln(w.in, strconv.FormatInt(at.UnixMicro(), 10)) // who is dead says so itself
	}
}

// end ends all workers that still run. What they say meanwhile is dropped.
func (f *fleet) end() {
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-f.news:
			case <-done:
				return
			}
		}
	}()
	for _, w := range f.workers {
		w.in.Close()
	}
	for _, w := range f.workers {
		w.end()
	}
}
