package fleet

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// network decides the fate of each request of one process, from its own random source, and counts the messages.
type network struct {
	w       *world
	process int
	rng     *rand.Rand
}

// fate is the treatment of one message.
type fate struct {
	lost           FaultKind // LoseRequests, LoseReplies, Duplicate, or none
	hang           bool      // the loss shows only as a time-out
	request, reply time.Duration
}

// roll draws the fate of a message. Only scripts are lost, late or duplicated, so that a handshake has the same cost
// everywhere.
func (n *network) roll(script bool) fate {
	var f fate
	for _, a := range *n.w.active.Load() {
		if !a.hits(n.process) {
			continue
		}
		if a.Kind == Slow {
			f.request += a.Size
			f.reply += a.Size
			continue
		}
		if !script || a.P > 0 && n.rng.Float64() >= a.P {
			continue
		}
		switch a.Kind {
		case LateReplies:
			f.reply += time.Duration(n.rng.Float64() * float64(a.Size))
		case LoseRequests, LoseReplies, Duplicate:
			f.lost, f.hang = a.Kind, n.rng.IntN(2) == 0
		}
	}
	return f
}

// judge is the verdict function of the link.
func (n *network) judge(_ int, cmd []string) redistest.Verdict {
	script := strings.EqualFold(cmd[0], "EVALSHA") || strings.EqualFold(cmd[0], "EVAL")
	if script && len(cmd) > 2 {
		// A batch without ops loads the script.
		beat := cmd[2] == "0" || slices.Contains([]string{lua.Fleet.SHA, lua.Fleet.Source, lua.Settings.SHA, lua.Settings.Source}, cmd[1])
		n.w.sent(beat)
	}
	f, v, then := n.roll(script), redistest.Forward(), redistest.ThenClose
	if f.hang {
		then = redistest.ThenHang
	}
	switch f.lost {
	case LoseRequests:
		v = redistest.DropRequest(then)
	case LoseReplies:
		v = redistest.DropReply(then)
	case Duplicate:
		v = redistest.Duplicate()
	}
	return v.Late(f.request, f.reply)
}

// hits reports whether a fault affects the process.
func (f Fault) hits(process int) bool { return f.Process < 0 || f.Process == process }
