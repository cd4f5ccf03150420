package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/news"
	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// Bounds of a heartbeat. They are those of the script.
const (
	// MaxGroups is the largest number of groups of a deployment.
	MaxGroups = 500
	// MaxNames is the largest number of bytes of the names of a group.
	MaxNames = 16 << 10
	// MaxNamesRead is the largest number of groups whose names a heartbeat should read.
	MaxNamesRead = 4
	// MaxExpiry is the longest time for which a process is counted after its heartbeat.
	MaxExpiry = 30 * time.Second

	maxLosses  = 1_000_000 // that a heartbeat tells
	maxGroupID = 32
	maxGroups  = 20 + MaxGroups*(2+maxGroupID+16) // bytes of a directory

	// MaxWanted is the largest number of marks that a heartbeat carries, in each direction.
	MaxWanted = 64
	markBytes = 22
	maxMarks  = MaxWanted * (intBytes + markBytes)

	// MaxPaused is the largest number of pauses that Redis keeps, and that a heartbeat carries, in each direction.
	MaxPaused = 1000
	// MaxPause is the longest pause.
	MaxPause  = news.LongestPause
	maxPauses = intBytes + MaxPaused*(intBytes+markBytes)

	pulseValues = 8 // elements of an answer without the lists
)

// Pulse is the content of a heartbeat. Its keys are from lua.Names and share a slot.
type Pulse struct {
	Group     string         // key of the sender's group
	Directory string         // key
	Changed   string         // key
	Names     string         // key of the names of the sender's group
	Wanted    string         // key of the marks of wanted keys
	Paused    string         // key of the pauses
	Before    []string       // keys of groups that may have the process from before
	Others    []string       // keys of groups to count
	Read      []string       // keys of names to read; at most MaxNamesRead
	ID        string         // of the sender's group
	Process   string         // id
	Expiry    time.Duration  // the process is counted for this long; at most MaxExpiry
	Leave     bool           // removes the process instead
	Text      string         // names to write; "": they are written
	TTL       time.Duration  // of names and directory
	Version   int64          // of the directory that the sender knows; 0: none
	Marks     []string       // of keys of which the sender wants units; at most MaxWanted
	Known     int64          // version of the pauses that the sender knows; 0: none
	Pauses    []Pause        // to tell; at most MaxPaused
	Members   string         // key, if there is a Member
	Member    *permits.Pulse // the part about permits; nil: none
}

// EncodePulse returns KEYS and ARGV of the script Fleet.
func EncodePulse(p Pulse) (keys, argv []string) {
	keys = append(make([]string, 0, 6+len(p.Before)+len(p.Others)+len(p.Read)), p.Group, p.Directory, p.Changed, p.Names, p.Wanted, p.Paused)
	keys = append(append(append(keys, p.Before...), p.Others...), p.Read...)
	argv = []string{
		p.Process, p.ID, p.Text,
		fmt.Sprintf("%d %d %d %d %d %d",
			p.Expiry.Microseconds(), flags(p.Leave), p.TTL.Milliseconds(), p.Version, len(p.Before), len(p.Others)),
		strings.Join(p.Marks, " "),
		pausesText(p.Known, p.Pauses),
	}
	if p.Member != nil {
		keys = append(keys, p.Members)
		argv = append(argv, strings.Join(append([]string{strconv.FormatInt(min(p.Member.Losses, maxLosses), 10)}, p.Member.Suspects...), " "))
	}
	return keys, argv
}

func pausesText(known int64, pauses []Pause) string {
	b := strconv.AppendInt(nil, known, 10)
	for _, p := range pauses {
		b = append(strconv.AppendInt(append(b, ' '), min(p.At, MaxPause.Microseconds()), 10), ' ')
		b = append(b, p.Mark...)
	}
	return string(b)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Beat is the answer to a heartbeat.
type Beat struct {
	Now     int64    // µs of Redis time of this heartbeat
	Before  int64    // µs at which this process's previous heartbeat expires; 0: Redis knows of none
	Changed int64    // µs of the last change of a setting; 0: none is known
	Version int64    // of the directory
	Told    bool     // Groups is the directory; otherwise the sender knows it
	Groups  []string // ids
	Wanted  []Mark   // of keys of which units are wanted, in the order of their times
	Paused  int64    // version of Pauses; 0: the sender knows them, or there are none
	Pauses  []Pause  // all of them; At is µs of Redis time
	Alive   int64    // number of processes of the sender's group
	Others  []int64  // and of the other groups, in the order of Pulse.Others
	Names   []string // in the order of Pulse.Read; "": not known
	Losses  int64    // of permits, of the fleet, if the pulse had a Member
	Beats   []int64  // µs; the last heartbeats of its suspects, in order; 0: none
}

// Mark tells that a process wants units of a key.
type Mark struct {
	At   int64  // µs of Redis time at which it was told
	Text string // lua.Names.Digest
}

// Pause tells that a key is paused.
type Pause struct {
	At   int64  // in an answer the µs of Redis time at which it ends, in a heartbeat the µs until then
	Mark string // lua.Names.Digest
}

// DecodeBeat reads the reply to a heartbeat. A reply that the script cannot have given is ErrReply.
func DecodeBeat(raw any, p Pulse) (Beat, error) {
	n := pulseValues + len(p.Others) + len(p.Read)
	if p.Member != nil {
		n += 1 + len(p.Member.Suspects)
	}
	v := valuesOf(raw, n, "heartbeat")
	b := Beat{Now: v.natural(), Before: v.natural(), Changed: v.natural(), Version: v.natural()}
	directory, marks, pauses, ok := v.text(maxGroups), v.text(maxMarks), v.text(maxPauses), true
	if b.Told = directory != ""; b.Told {
		_, b.Groups, ok = DecodeGroups(directory)
		v.must(ok, directory)
	}
	b.Wanted, ok = decodeMarks(marks)
	v.must(ok, marks)
	b.Paused, b.Pauses, ok = decodePauses(pauses)
	v.must(ok, pauses)
	b.Alive, b.Others = v.natural(), v.naturals(len(p.Others))
	for range p.Read {
		b.Names = append(b.Names, v.text(MaxNames))
	}
	if p.Member != nil {
		b.Losses, b.Beats = v.natural(), v.naturals(len(p.Member.Suspects))
	}
	return result(b, v.err)
}

// DecodeGroups reads a directory: its version and the ids of its groups. It returns false for text that the script
// cannot have written.
func DecodeGroups(text string) (version int64, ids []string, ok bool) {
	fields := strings.Split(text, " ")
	if len(fields) < 2 || len(fields)%2 != 0 || len(fields)/2-1 > MaxGroups || fields[0] != "1" {
		return 0, nil, false
	}
	for i := 1; i < len(fields); i += 2 {
		n, ok := natural(fields[i])
		if !ok {
			return 0, nil, false
		}
		if i == 1 {
			version = n
			continue
		}
		if id := fields[i-1]; id == "" || len(id) > maxGroupID {
			return 0, nil, false
		}
		ids = append(ids, fields[i-1])
	}
	return version, ids, true
}

// decodePauses reads pauses and their version. It returns false for text that the script cannot have written.
func decodePauses(text string) (version int64, pauses []Pause, ok bool) {
	if text == "" {
		return 0, nil, true
	}
	fields := strings.Split(text, " ")
	if version, ok = natural(fields[0]); !ok || version == 0 || len(fields)%2 == 0 || len(fields)/2 > MaxPaused {
		return 0, nil, false
	}
	for i := 1; i < len(fields); i += 2 {
		at, ok := natural(fields[i])
		if !ok || len(fields[i+1]) != markBytes {
			return 0, nil, false
		}
		pauses = append(pauses, Pause{at, fields[i+1]})
	}
	return version, pauses, true
}

// decodeMarks reads marks and their times. It returns false for text that the script cannot have written.
func decodeMarks(text string) ([]Mark, bool) {
	if text == "" {
		return nil, true
	}
	fields := strings.Split(text, " ")
	if len(fields)%2 != 0 || len(fields)/2 > MaxWanted {
		return nil, false
	}
	marks := make([]Mark, 0, len(fields)/2)
	for i := 0; i < len(fields); i += 2 {
		at, ok := natural(fields[i])
		if !ok || len(fields[i+1]) != markBytes {
			return nil, false
		}
		marks = append(marks, Mark{at, fields[i+1]})
	}
	return marks, true
}
