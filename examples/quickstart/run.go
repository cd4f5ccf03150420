package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"
)

// run is one run of the demonstration, as the parent sees it.
type run struct {
	config config
	out    io.Writer
	server *server // nil with -redis
	fleet  *fleet
	board  *board
	record record

	start       time.Time        // of the load
	kill, raise <-chan time.Time // when Redis is to be killed and started again; nil: never
	ready, done map[int]bool     // processes that have said so
}

// silence is how long nobody may have nothing to say.
const silence = 20 * time.Second

// newRun starts Redis and the workers. Call close in any case.
func newRun(c config, out io.Writer) (*run, error) {
	r := &run{config: c, out: out, ready: map[int]bool{}, done: map[int]bool{}}
	r.record = record{config: c, cells: make([][]cell, c.Processes), fleet: make([]int64, c.Processes)}
	r.board = newBoard(out, c)
	j := job{config: c, Addr: c.Redis, Prefix: "quickstart-" + rand.Text()[:10]} // nobody else's keys
	if c.Redis != "" {
		if err := ping(c.Redis); err != nil {
			return r, fmt.Errorf("no Redis at %s: %w", c.Redis, err)
		}
	} else {
		s, err := startServer(c.RedisServer)
		if err != nil {
			return r, err
		}
		r.server, j.Addr = s, s.addr
	}
	introduce(out, c, r.server)
	var err error
	r.fleet, err = startFleet(j)
	return r, err
}

func (r *run) close() {
	if r.fleet != nil {
		r.fleet.end()
	}
	if r.server != nil {
		r.server.kill()
	}
}

// play waits for the workers, starts the load, and follows it to its end.
func (r *run) play(ctx context.Context) error {
	if err := r.follow(ctx, r.ready); err != nil {
		return err
	}
	r.start = time.Now().Add(100 * time.Millisecond) // for the news to arrive
	r.fleet.start(r.start)
	if from, to, ok := r.config.outage(); ok {
		r.kill = time.After(time.Until(r.start.Add(from)))
		r.raise = time.After(time.Until(r.start.Add(to)))
	}
	r.board.header()
	return r.follow(ctx, r.done)
}

// follow handles what happens until all processes are in the set.
func (r *run) follow(ctx context.Context, set map[int]bool) error {
	for len(set) < r.config.Processes {
		var died <-chan struct{}
		if r.server != nil && r.server.up {
			died = r.server.child.exited
		}
		select {
		case n := <-r.fleet.news:
			if err := r.hear(n); err != nil {
				return err
			}
		case <-r.kill:
			r.record.killed = time.Since(r.start)
			r.server.kill()
			r.record.outage = true
			r.board.event(event{At: r.record.killed, Text: "Redis is killed (SIGKILL)"}, 0)
		case <-r.raise:
			r.record.restarted = time.Since(r.start)
			if err := r.server.start(); err != nil {
				return err
			}
			r.board.event(event{At: time.Since(r.start), Text: "Redis is back, with nothing in it"}, 0)
		case <-died:
			return errors.New("the Redis server ended by itself")
		case <-time.After(silence):
			return fmt.Errorf("no process has said anything for %v", silence)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// hear takes in what a worker says. One that ends before it is done is an error.
func (r *run) hear(n news) error {
	switch {
	case n.ended && !r.done[n.process]:
		return fmt.Errorf("process %d ended before it was done: %w", n.process, cmp.Or(n.err, errExit))
	case n.Kind == kindFailed:
		return fmt.Errorf("process %d: %s", n.process, n.Error)
	case n.Kind == kindReady:
		r.ready[n.process] = true
	case n.Kind == kindDone:
		r.done[n.process] = true
	case n.Kind == kindEvent:
		r.board.event(*n.Event, n.process)
	case n.Kind == kindReport:
		r.take(n.process-1, *n.Report)
	}
	return nil
}

var errExit = errors.New("exit status 0")

func (r *run) take(p int, rep report) {
	rec := &r.record
	rec.cells[p] = append(rec.cells[p], rep.Cells...)
	rec.errors += rep.Errors
	if rec.restarted == 0 {
		rec.credit = max(rec.credit, rep.Credit)
	}
	if rep.LastError != "" {
		rec.lastError = rep.LastError
	}
	if rec.restarted == 0 && (rec.fleet[p] == 0 || rep.Fleet < rec.fleet[p]) {
		rec.fleet[p] = rep.Fleet
	}
	r.board.report(rep)
}
