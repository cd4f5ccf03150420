package fleet

import (
	"github.com/hybridlimit/hybridlimit"
)

// call is one decision. Times are ns since the start of the load.
type call struct {
	at, end   int64
	spent     int64 // the time at which the call counts; if Redis granted it, the time of the grant
	delay     int64 // queue: the delay until the call may go
	cost      int64
	key       int32
	process   int32 // the process of the load; a restarted process keeps its number
	source    hybridlimit.Source
	view      int8 // of process.views
	allowed   bool
	important bool // critical
	spike     bool // of a spike
	void      bool // no decision: the process ended meanwhile
}

// journal keeps the calls of one process at fixed addresses, because a waiting call is completed later.
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
