//go:build unix

package benchkit

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// Meter measures what something takes.
type Meter struct {
	Redis   *Redis                        // nil: not measured
	Wire    *Wire                         // nil: not measured
	Process func() (time.Duration, error) // the CPU time of a process; nil: of this one
}

// Spent is what something took.
type Spent struct {
	Wall, Redis, Process     time.Duration // Redis and Process are CPU time
	Messages, Sent, Received int64         // Sent and Received are bytes

	// Of Commands only: the commands of Redis, with those that scripts call, the scripts, and the wall time in them.
	Calls, Scripts int64
	InScripts      time.Duration
}

// Spent measures do. The clock is read nearest to it, and Redis is asked farthest.
func (m Meter) Spent(ctx context.Context, do func() error) (s Spent, err error) {
	process := m.Process
	if process == nil {
		process = OwnCPU
	}
	redis, err := m.Redis.CPU(ctx)
	if err != nil {
		return s, err
	}
	own, err := process()
	if err != nil {
		return s, err
	}
	messages, sent, received := m.Wire.Traffic()
	begin := time.Now()
	err = do()
	s.Wall = time.Since(begin)
	s.Messages, s.Sent, s.Received = m.Wire.Traffic()
	s.Messages, s.Sent, s.Received = s.Messages-messages, s.Sent-sent, s.Received-received
	own2, err2 := process()
	redis2, err3 := m.Redis.CPU(ctx)
	s.Process, s.Redis = own2-own, redis2-redis
	return s, errors.Join(err, err2, err3)
}

// Commands is like Spent, and counts the commands of Redis, whose figures it resets.
func (m Meter) Commands(ctx context.Context, do func() error) (s Spent, err error) {
	if err := m.Redis.Admin.ConfigResetStat(ctx).Err(); err != nil {
		return s, err
	}
	if s, err = m.Spent(ctx, do); err != nil {
		return s, err
	}
	s.Calls, s.Scripts, s.InScripts, err = m.Redis.commands(ctx)
	return s, err
}

// Per returns the figures of one of n: times in µs, messages and bytes, and the commands that scripts call.
func (s Spent) Per(n float64) Figures {
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / n }
	return Figures{
		"cpu": micros(s.Redis), "process": micros(s.Process), "script": micros(s.InScripts),
		"messages": float64(s.Messages) / n, "inner": float64(max(0, s.Calls-s.Messages)) / n,
		"sent": float64(s.Sent) / n, "received": float64(s.Received) / n, "bytes": float64(s.Sent+s.Received) / n,
	}
}

// OwnCPU returns the CPU time of this process, user and system together.
func OwnCPU() (time.Duration, error) {
	var r syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), err
}
