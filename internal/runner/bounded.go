package runner

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// bounded returns c's Process with time-outs of at most timeout. strict also ends at the deadline of its context,
// whether c's ContextTimeoutEnabled is on or off. It is nil if that is impossible.
//
// WithTimeout alone loses c's hooks (go-redis 9.23), and with them its traces. A Conn inherits the hooks. The Conn here
// passes each command to the copy with the time-out, so it never takes a connection itself.
func bounded(c *redis.Client, timeout time.Duration) (loose, strict process) {
	if own := c.Options().ReadTimeout; own > 0 { // otherwise c waits for ever
		timeout = min(timeout, own)
	}
	loose = hooked(c, c.WithTimeout(timeout))
	ends := c.WithTimeout(timeout)
	ends.Options().ContextTimeoutEnabled = true // of this copy only
	if ends.Options().ContextTimeoutEnabled {
		strict = hooked(c, ends)
	}
	return loose, strict
}

// hooked returns the Process of to with the hooks of c.
func hooked(c, to *redis.Client) process {
	conn := c.Conn()
	conn.AddHook(handOn{to})
	return conn.Process
}

// handOn is the innermost hook of a client. It lets another client run the commands.
type handOn struct{ to *redis.Client }

// DialHook implements redis.Hook. There is nothing to dial.
func (handOn) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h handOn) ProcessHook(redis.ProcessHook) redis.ProcessHook { return h.to.Process }

// ProcessPipelineHook implements redis.Hook. There are no pipelines.
func (handOn) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
