package filepoll

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"
)

const (
	// Settle is the time between the two reads that must find the same new content.
	// It is longer than the pauses of a program that writes a file in parts.
	Settle = 100 * time.Millisecond
	// SlowRead is the time after which a read counts as an error.
	SlowRead = 10 * time.Second
)

// ErrUnsettled means that two reads differ. The next look reads again.
var ErrUnsettled = errors.New("the file changes while it is read")

// Poller reads content again and again, and applies it when it has changed. T is its form after Parse. A Poller is for
// one goroutine. All fields but the unexported ones are required.
type Poller[T any] struct {
	// Read returns the content. It may block: see SlowRead.
	Read func() ([]byte, error)
	// Parse must be a function of its argument only. It may take long: Look does not wait for it after the end of its
	// context.
	Parse func(data []byte) (T, error)
	// Apply puts content in force. After an error it is called again with each look, while the content stays.
	Apply func(content T, hash [sha256.Size]byte) error

	pending chan read          // of the read that has not been awaited; nil: none
	parsing chan *candidate[T] // of a Parse that has not been awaited; nil: none
	inForce bool               // content was applied
	hash    [sha256.Size]byte  // of the content in force
	latest  *candidate[T]      // the last content that two reads found; nil: none
}

// candidate is content that two reads have found.
type candidate[T any] struct {
	hash    [sha256.Size]byte
	content T
	err     error // of Parse
}

// Look reads the content once, and applies it if it is new. It reads a second time if the content is not as the last
// look found it. A nil error means that the content that was read is in force. Errors of Read, Parse and Apply are
// returned as they are. Other errors are ErrUnsettled, ErrSlow and the error of ctx.
func (p *Poller[T]) Look(ctx context.Context) error {
	data, err := p.fetch(ctx)
	hash := sha256.Sum256(data)
	switch {
	case err == nil && p.inForce && hash == p.hash:
		return nil
	case err == nil && p.latest != nil && hash == p.latest.hash:
		return p.apply()
	case errors.Is(err, ErrSlow):
		return err
	}
	select {
	case <-time.After(Settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	again, errAgain := p.fetch(ctx)
	switch {
	case err != nil && errAgain != nil:
		return errAgain
	case err != nil || errAgain != nil || sha256.Sum256(again) != hash:
		return ErrUnsettled
	}
	if err := p.parse(ctx, data, hash); err != nil {
		return err
	}
	return p.apply()
}

// parse makes the latest content of data. Parse has a goroutine of its own, so that the end of ctx is the end of the
// look.
func (p *Poller[T]) parse(ctx context.Context, data []byte, hash [sha256.Size]byte) error {
	p.parsing = make(chan *candidate[T], 1)
	go func(to chan<- *candidate[T]) {
		c := &candidate[T]{hash: hash}
		c.content, c.err = p.Parse(data)
		to <- c
	}(p.parsing)
	select {
	case p.latest = <-p.parsing:
		p.parsing = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apply puts the latest content in force.
func (p *Poller[T]) apply() error {
	c := p.latest
	if c.err != nil {
		return c.err
	}
	if err := p.Apply(c.content, c.hash); err != nil {
		return err
	}
	p.inForce, p.hash = true, c.hash
	return nil
}

// read is the result of a read.
type read struct {
	data []byte
	err  error
}

// ErrSlow means that a read has not returned yet.
var ErrSlow = errors.New("a read takes longer than " + SlowRead.String())

// fetch returns the content. A read has a goroutine of its own, because a read from a
// file system that hangs cannot be interrupted. There is one read at a time: after one
// that took too long, the next call waits for it and takes its content.
func (p *Poller[T]) fetch(ctx context.Context) ([]byte, error) {
	if p.pending == nil {
		p.pending = make(chan read, 1)
		go func(to chan<- read) {
			data, err := p.Read()
			to <- read{data, err}
		}(p.pending)
	}
	slow := time.NewTimer(SlowRead)
	defer slow.Stop()
	select {
	case r := <-p.pending:
		p.pending = nil
		return r.data, r.err
	case <-slow.C:
		return nil, ErrSlow
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Wait waits for a read and a Parse that have not been awaited, at most for the given time.
// Call it after the last Look.
func (p *Poller[T]) Wait(most time.Duration) {
	end := time.NewTimer(most)
	defer end.Stop()
	for p.pending != nil || p.parsing != nil {
		select {
		case <-p.pending:
			p.pending = nil
		case <-p.parsing:
			p.parsing = nil
		case <-end.C:
			return
		}
	}
}
