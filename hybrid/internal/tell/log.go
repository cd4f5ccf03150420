package tell

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
)

// LogEvery is the least time between two lines with the same message. A flapping Redis must not cause a line per flap.
const LogEvery = time.Second

// Log writes a line when the hub's state changes, and never per decision.
type Log struct {
	log *slog.Logger

	mu     sync.Mutex // guards the fields below; not held while logging
	lines  map[string]*sometimes.Line
	broken map[int]struct{} // breakers that are not closed
	said   bool             // the last line about them was msgBroken
}

// NewLog returns the log of a hub that writes to log.
func NewLog(log *slog.Logger) *Log {
	return &Log{log: log, lines: map[string]*sometimes.Line{}, broken: map[int]struct{}{}}
}

// Event logs a warning, unless the same message was logged less than logEvery ago.
func (s *Log) Event(msg string, attrs ...any) {
	s.mu.Lock()
	skipped, ok := s.due(msg)
	s.mu.Unlock()
	if ok {
		s.Write(slog.LevelWarn, msg, skipped, attrs)
	}
}

// due reports whether msg may be logged now, and how many lines with it were skipped since the last one. Call it
// under s.mu.
func (s *Log) due(msg string) (skipped int64, ok bool) {
	line := s.lines[msg]
	if line == nil {
		line = sometimes.Every(LogEvery)
		s.lines[msg] = line
	}
	return line.Due()
}

// Write writes a line, with the number of lines that were skipped before it.
func (s *Log) Write(level slog.Level, msg string, skipped int64, attrs []any) {
	if skipped > 0 {
		attrs = append(attrs, slog.Int64("skipped", skipped))
	}
	s.log.Log(context.Background(), level, msg, attrs...)
}

// The lines about Redis and the fleet.
const (
	MsgSmall      = "hybridlimit: the credit of a key is 0 units, so a call for a key without a lease waits one round trip to Redis; the attribute why has the reason and the setting that changes it"
	msgBroken     = "hybridlimit: Redis does not answer (check Redis and the network); its keys are decided locally, by each limiter's fallback"
	msgStarved    = "hybridlimit: answers of Redis come too late, because this process gets too little processor time (the attribute late has its delay); its keys are decided locally, by each limiter's fallback"
	msgMended     = "hybridlimit: Redis answers again; the shared limit holds for all keys again"
	MsgSwitch     = "hybridlimit: the limiter's switch was changed by hand; the attribute to names the switch that decides now"
	MsgLost       = "hybridlimit: Redis lost its state; this process tells Redis the last known state of its keys; if Redis was not restarted, wiped or failed over, check whether it evicts keys"
	MsgOddSwitch  = "hybridlimit: the fleet's switch has a value that this version does not know, so the limiter ignores it; update this process"
	MsgLimit      = "hybridlimit: the limiter's limit has changed, by the fleet or by its settings; used units stay used; the attribute to has the limit in force"
	MsgOddLimit   = "hybridlimit: this process cannot apply the fleet's limit, so the limiter ignores it; the attribute error has the reason; set another one, or update this process"
	MsgKeyLimits  = "hybridlimit: the fleet's limits of single keys have changed; the attribute keys has their number"
	MsgPausesFull = "hybridlimit: a key is not paused, because this process knows too many pauses; raise Penalty.After"
	MsgKeysFull   = "hybridlimit: Redis has lost limits of single keys and has no room to restore them; set them again"
	MsgOtherLimit = "hybridlimit: other processes have another limit for this limiter, and share the state of its keys; give programs of different limits different names or prefixes; the attribute other has their limit"
	MsgOtherSplit = "hybridlimit: other processes split the keys of this limiter into another number of parts; a key with two numbers of parts may admit up to twice its limit; give all processes the same Config.Split; the attribute other has their number"
	MsgSplitAlone = "hybridlimit: Config.Split gains nothing on a single Redis: it costs part of each burst, and the parts share one server; the limiter splits its keys all the same"
	MsgRefuses    = "hybridlimit: Redis refuses the syncs of a slot; the keys of the slot are decided locally, by the fallback of their limiter; the attribute cause has the error"
	MsgTakes      = "hybridlimit: Redis applies the syncs of a slot again; the shared limit holds for the keys of the slot again"
	MsgRenamed    = "hybridlimit: another program or process uses this process's identity in Redis: it wrote to this process's envelope, or it is a copy of this process; this process continues under a new identity"
	MsgOverflow   = "hybridlimit: memory is full of keys that owe, and Redis does not answer; Redis never receives the units of keys without room in memory; raise MaxKeys, or stop made-up keys"
	MsgBadLimit   = "hybridlimit: Config.LimitFor returned a limit that is not valid for a key in memory; the key keeps its limit until LimitFor is asked again; the attribute cause has the error"
	MsgRestore    = "hybridlimit: Config.Restore has not told the use of a key that Redis may have lost; the key may use the units of its period again; Restore is asked again with a later call; the attribute cause has the error"
	MsgRates      = "hybridlimit: Redis refused a message about leased rates and did not apply it; the fallback decides about its keys for now"
	MsgPermits    = "hybridlimit: Redis refused a message about permits and did not apply it; calls of its keys wait for the next one"
	MsgCrowded    = "hybridlimit: Redis refuses this process's heartbeats; without them the process gives no credit; the attribute cause has the error, and docs/operations.md the bound on groups of limiters"
	MsgFloor      = "hybridlimit: Redis does not answer, and the fleet has more processes than the limit has permits; each process may run as many calls of a key as the attribute floor says, together more than the limit; ConcurrencyConfig.FallbackFloor changes it"
	msgAlone      = "hybridlimit: the fleet's size is unknown, so this process uses the whole limit; set HubConfig.FleetSize"
)

// Breaker logs a line when the hub falls back, which is when the first of its breakers opens. It logs another when
// the hub recovers, which is when the last breaker has closed. Half-open causes no line. A skipped line (see
// logEvery) is made up for: an open breaker opens again after each failed probe, and the recovery is logged if the
// failure was. So the last line is right within a second or a probe.
//
// fellBack returns the part of the line about a fallback that only the hub knows.
func (s *Log) Breaker(which int, c breaker.Change, fellBack func() FellBack) {
	var msg string
	var skipped int64
	s.mu.Lock()
	switch c.To {
	case breaker.Open:
		s.broken[which] = struct{}{}
		if !s.said {
			if skipped, s.said = s.due(msgBroken); s.said {
				msg = msgBroken
			}
		}
	case breaker.Closed:
		delete(s.broken, which)
		if s.said && len(s.broken) == 0 {
			s.said, msg = false, msgMended
		}
	}
	s.mu.Unlock()
	switch msg {
	case msgBroken:
		s.fellBack(c.Cause, fellBack(), skipped)
	case msgMended:
		s.Write(slog.LevelInfo, msgMended, 0, nil)
	}
}

// whyBroken returns the line for a hub that falls back by a cause while its process runs late by so much. From a
// quarter of SyncTimeout on, the process, and not Redis, is the likely cause of late answers.
func whyBroken(late, syncTimeout time.Duration, cause error) (msg string, attrs []any) {
	if late < syncTimeout/4 || !tooLate(cause) {
		return msgBroken, nil
	}
	return msgStarved, []any{slog.Duration("late", late)}
}

// tooLate reports whether a failure is only that an answer came too late. A refused connection is one of Redis, also if
// a call then waited for it in vain.
func tooLate(cause error) bool {
	var op *net.OpError
	if errors.As(cause, &op) && !op.Timeout() {
		return false
	}
	var timeout interface{ Timeout() bool }
	return errors.Is(cause, breaker.ErrSlow) || errors.As(cause, &timeout) && timeout.Timeout()
}

// FellBack is what the line about a fallback says of the hub.
type FellBack struct {
	Late, SyncTimeout time.Duration
	Limiters          []any  // an attribute for each
	Alone             string // a limiter that does not know the size of its fleet; empty: none
}

func (s *Log) fellBack(cause error, f FellBack, skipped int64) {
	msg, attrs := whyBroken(f.Late, f.SyncTimeout, cause)
	attrs = append(append(attrs, slog.Any("cause", cause)), f.Limiters...)
	s.Write(slog.LevelWarn, msg, skipped, attrs)
	if f.Alone != "" {
		s.Event(msgAlone, slog.String("limiter", f.Alone))
	}
}
