package wire

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxKeyLimits is the largest number of keys of a limiter with a limit of the fleet.
	MaxKeyLimits = 1000
	// MaxKeyLimitBytes is the longest text of these limits in Redis.
	MaxKeyLimitBytes = 256 << 10

	maxKeyToken = 2048 // bytes of a key as a token
)

// KeyLimit is the fleet's limit of a key, as Redis keeps it.
type KeyLimit struct {
	Key  string // from lua.Names.Stored
	Text string // at most 256 bytes of printable ASCII; "" says that the limit was taken back
	At   int64  // µs of Redis time at which it was set; the later of two is valid
}

// KeyLimits is the fleet's limits of the keys of a limiter.
type KeyLimits struct {
	Now     int64      // µs of Redis time
	Version int64      // another one after each change; 0: there are none
	Of      []KeyLimit // in the order in which the keys were set first
}

// FitsKeyLimit reports whether a key is short enough for a limit of the fleet.
func FitsKeyLimit(key string) bool { return key != "" && len(url.QueryEscape(key)) <= maxKeyToken }

// line returns a limit as a line of the state.
func (k KeyLimit) line() string {
	limit := "-"
	if k.Text != "" {
		limit = strings.ReplaceAll(k.Text, " ", "~") // no text of a limit has a "~"
	}
	return strconv.FormatInt(k.At, 10) + " " + limit + " " + url.QueryEscape(k.Key) + "\n"
}

// EncodeSetKeyLimit returns KEYS and ARGV of the script SetKeys that set one limit. The keys are from
// lua.Names.KeyLimits and Changed.
func EncodeSetKeyLimit(state, changed string, limit KeyLimit, ttl time.Duration) (keys, argv []string) {
	return []string{state, changed}, []string{"set", millis(ttl), limit.line()}
}

// EncodeTellKeyLimits returns KEYS and ARGV of the script SetKeys that tell limits which a process knows.
func EncodeTellKeyLimits(state, changed string, limits []KeyLimit, ttl time.Duration) (keys, argv []string) {
	var b strings.Builder
	for _, k := range limits {
		b.WriteString(k.line())
	}
	return []string{state, changed}, []string{"tell", millis(ttl), b.String()}
}

// EncodeReadKeyLimits returns KEYS and ARGV of the script SetKeys that only read.
func EncodeReadKeyLimits(state string) (keys, argv []string) { return []string{state}, nil }

// DecodeKeyLimits reads the reply of SetKeys. A reply that the script cannot have given is ErrReply.
func DecodeKeyLimits(raw any) (k KeyLimits, err error) {
	list, ok := raw.([]any)
	if !ok || len(list) != 2 {
		return k, fmt.Errorf("%w: the limits of keys are a %T of %d elements", ErrReply, raw, len(list))
	}
	now, err := naturals(list[:1], 1, "limits of keys")
	if err != nil {
		return k, err
	}
	k.Now = now[0]
	text, ok := list[1].(string)
	if !ok || len(text) > MaxKeyLimitBytes {
		return KeyLimits{}, fmt.Errorf("%w: the limits of keys are a %T of %d bytes", ErrReply, list[1], len(text))
	}
	if text == "" {
		return k, nil
	}
	head, rest, _ := strings.Cut(text, "\n")
	version, ok := strings.CutPrefix(head, "1 ")
	if k.Version, ok = natural(version, ok); !ok || k.Version == 0 {
		return KeyLimits{}, fmt.Errorf("%w: the limits of keys begin with %.40q", ErrReply, head)
	}
	for line := range strings.Lines(rest) {
		one, ok := readKeyLimit(line)
		if !ok {
			return KeyLimits{}, fmt.Errorf("%w: the limits of keys have the line %.200q", ErrReply, line)
		}
		k.Of = append(k.Of, one)
	}
	return k, nil
}

// readKeyLimit is the inverse of line.
func readKeyLimit(line string) (k KeyLimit, ok bool) {
	line, whole := strings.CutSuffix(line, "\n")
	at, rest, two := strings.Cut(line, " ")
	limit, token, three := strings.Cut(rest, " ")
	if k.At, ok = natural(at, whole && two && three); !ok {
		return k, false
	}
	if limit != "-" {
		k.Text = strings.ReplaceAll(limit, "~", " ")
	}
	var err error
	k.Key, err = url.QueryUnescape(token)
	return k, err == nil && k.Key != "" && printable(k.Text) && (k.Text != "" || limit == "-")
}

// natural reads digits of a number up to 2⁵³, if ok.
func natural(text string, ok bool) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return int64(n), ok && err == nil && n <= 1<<53
}
