package fleet

import (
	"github.com/hybridlimit/hybridlimit"
)

// call is one decision. Times are ns since the load started.
type call struct {
	at, end int64
	spent   int64 // when it counts: of a call that Redis granted, when Redis did
	delay   int64 // of a queue: so much later it may go
	cost    int64
	key     int32
	process int32 // whose load it was; a process that restarted keeps its number
	source  hybridlimit.Source
	allowed bool
	void    bool // nobody decided: the process ended meanwhile
}

// journal keeps the calls of one process where they are: a call that waits is
// filled in later.
type journal struct{ chunks [][]call }

const journalChunk = 1024

func (j *journal) add(c call) *call {
	last := len(j.chunks) - 1
	if last < 0 || len(j.chunks[last]) == journalChunk {
		j.chunks = append(j.chunks, make([]call, 0, journalChunk))
		last++
	}
	j.chunks[last] = append(j.chunks[last], c)
	return &j.chunks[last][len(j.chunks[last])-1]
}
