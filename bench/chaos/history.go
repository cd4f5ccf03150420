package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// recordKind is the kind of a record.
type recordKind uint8

const (
	recordDecision recordKind = iota + 1 // a call, as its caller saw it
	recordNap                            // an oversleep of the canary: a delay by the machine, not by the library
	recordSync                           // a call of the library to Redis
	recordBreaker                        // a breaker changed from the state in key to the state in units
	recordBegin                          // the goroutine in key began a call in flight, with a permit of source
	recordEnd                            // the goroutine in key ends its call in flight, and gives the permit back next
	recordMember                         // a process became a member of the fleet; not allowed: it ceased to be one
)

// record is an entry in the history of a worker.
type record struct {
	kind    recordKind
	allowed bool
	failed  bool // an error was returned
	warm    bool // the same call was made just before
	source  hybridlimit.Source
	stream  uint8
	key     uint16        // number within the stream
	units   int32         // granted
	begin   int64         // ns, on the clock that all processes of a run share
	took    time.Duration // of a nap: the whole sleep, of which 1 ms was intended
	beside  time.Duration // of a warm decision: calls of package local right behind it, the canary of its latency
}

func (r record) end() int64 { return r.begin + int64(r.took) }

const recordBytes = 36

func (r record) encode() (b [recordBytes]byte) {
	b[0], b[2], b[3] = byte(r.kind), byte(r.source), r.stream
	for i, flag := range [...]bool{r.allowed, r.failed, r.warm} {
		if flag {
			b[1] |= 1 << i
		}
	}
	binary.LittleEndian.PutUint16(b[4:], r.key)
	binary.LittleEndian.PutUint32(b[8:], uint32(r.units))
	binary.LittleEndian.PutUint64(b[12:], uint64(r.begin))
	binary.LittleEndian.PutUint64(b[20:], uint64(r.took))
	binary.LittleEndian.PutUint64(b[28:], uint64(r.beside))
	return b
}

func decodeRecord(b *[recordBytes]byte) record {
	return record{
		kind: recordKind(b[0]), allowed: b[1]&1 > 0, failed: b[1]&2 > 0, warm: b[1]&4 > 0,
		source: hybridlimit.Source(b[2]), stream: b[3],
		key: binary.LittleEndian.Uint16(b[4:]), units: int32(binary.LittleEndian.Uint32(b[8:])),
		begin: int64(binary.LittleEndian.Uint64(b[12:])), took: time.Duration(binary.LittleEndian.Uint64(b[20:])),
		beside: time.Duration(binary.LittleEndian.Uint64(b[28:])),
	}
}

// sharedClock is the common clock of all processes of a run. It reads the wall clock once per process, and is monotonic
// from then on.
type sharedClock struct{ start time.Time }

func newSharedClock() sharedClock { return sharedClock{time.Now()} }

func (c sharedClock) at(t time.Time) int64 { return c.start.UnixNano() + int64(t.Sub(c.start)) }
func (c sharedClock) now() int64           { return c.at(time.Now()) }

// journal writes the history of a worker. Each record goes to the kernel at once. So a killed worker loses no record,
// and the heap that the run measures holds none. An append by a single write is not interleaved with those of other
// goroutines.
type journal struct {
	clock sharedClock
	file  *os.File
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &journal{newSharedClock(), f}, err
}

func (j *journal) write(r record) {
	b := r.encode()
	if _, err := j.file.Write(b[:]); err != nil {
		panic(err) // a history with a hole proves nothing
	}
}

// readHistory reads the history of a worker. A truncated last record is not an error: the worker was killed while it
// wrote.
func readHistory(path string) (out []record, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b [recordBytes]byte
	for in := bufio.NewReaderSize(f, 1<<20); ; out = append(out, decodeRecord(&b)) {
		if _, err := io.ReadFull(in, b[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
	}
}
