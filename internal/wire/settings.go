package wire

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MaxSettings is the largest number of limiters in a message about settings.
const MaxSettings = 100

// maxLimitText is the largest number of bytes of a fleet's limit.
const maxLimitText = 256

// Flag is the fleet's switch of a limiter, as Redis keeps it. Package hybrid defines the meaning of the number. The
// zero Flag means that the switch was never set.
type Flag struct {
	Switch int64 // below 10⁹
	At     int64 // µs of Redis time at which it was set; the later of two flags is valid
}

// FleetLimit is the fleet's limit of a limiter, as Redis keeps it. Package hybrid defines the meaning of the text. The
// zero FleetLimit means that it was never set.
type FleetLimit struct {
	Text string // at most 256 bytes of printable ASCII; "" is no limit
	At   int64  // µs of Redis time at which it was set; the later of two is valid
}

// Setting is the settings of one limiter: those that a process saw last, or those of Redis.
type Setting struct {
	SwitchKey string     // from lua.Names.Switch
	LimitKey  string     // from lua.Names.FleetLimit
	KeysKey   string     // from lua.Names.KeyLimits
	Flag      Flag       // the fleet's switch
	Limit     FleetLimit // the fleet's limit
	Keys      int64      // version of the fleet's limits of keys in Redis; 0: there are none
}

// EncodeSettings returns KEYS and ARGV of the script Settings for at most MaxSettings limiters. changed is the key of
// the time of the last change. Redis keeps settings for ttl; they are renewed when less than half of it is left.
func EncodeSettings(changed string, settings []Setting, ttl time.Duration) (keys, argv []string) {
	keys, argv = append(keys, changed), append(argv, millis(ttl))
	for _, s := range settings {
		keys = append(keys, s.SwitchKey, s.LimitKey, s.KeysKey)
		argv = append(argv,
			strconv.FormatInt(s.Flag.Switch, 10), strconv.FormatInt(s.Flag.At, 10), s.Limit.Text, strconv.FormatInt(s.Limit.At, 10))
	}
	return keys, argv
}

// Settings is the answer to a message about settings.
type Settings struct {
	Now     int64     // µs of Redis time
	Changed int64     // µs of the last change of a setting
	Of      []Setting // in the order of the message, with its keys
}

// settingValues is the number of values of a limiter in the reply.
const settingValues = 5

// DecodeSettings reads the reply to a message about these settings. A reply that the script cannot have given is
// ErrReply.
func DecodeSettings(raw any, settings []Setting) (Settings, error) {
	v := valuesOf(raw, 2+settingValues*len(settings), "settings")
	s := Settings{Now: v.natural(), Changed: v.natural(), Of: append([]Setting{}, settings...)}
	for i := range s.Of {
		of := &s.Of[i]
		of.Flag, of.Limit, of.Keys = v.flag(), v.limit(), v.natural()
		of.Flag.At, of.Limit.At = min(of.Flag.At, s.Now), min(of.Limit.At, s.Now)
	}
	return result(s, v.err)
}

func (v *values) flag() Flag { return Flag{Switch: v.natural(), At: v.natural()} }

func (v *values) limit() FleetLimit {
	l := FleetLimit{Text: v.text(maxLimitText), At: v.natural()}
	v.must(printable(l.Text), l.Text)
	return l
}

// EncodeSwitch returns KEYS and ARGV of the script SetSwitch. The keys are from lua.Names.Switch and Changed. The
// switch expires after ttl unless processes renew it.
func EncodeSwitch(key, changed string, to int64, ttl time.Duration) (keys, argv []string) {
	return []string{key, changed}, []string{strconv.FormatInt(to, 10), millis(ttl)}
}

// EncodeSwitchRead returns KEYS and ARGV of SetSwitch that only read the switch.
func EncodeSwitchRead(key string) (keys, argv []string) {
	return []string{key}, []string{"", "0"}
}

// DecodeSwitch reads the reply of SetSwitch. A reply that the script cannot have given is ErrReply.
func DecodeSwitch(raw any) (Flag, error) {
	v := valuesOf(raw, 2, "switch")
	flag := v.flag()
	return result(flag, v.err)
}

// EncodeFleetLimit returns KEYS and ARGV of the script SetLimit. The keys are from lua.Names.FleetLimit and Changed.
// The limit expires after ttl unless processes renew it.
func EncodeFleetLimit(key, changed, text string, ttl time.Duration) (keys, argv []string) {
	return []string{key, changed}, []string{text, millis(ttl)}
}

// EncodeFleetLimitRead returns KEYS and ARGV of SetLimit that only read the limit.
func EncodeFleetLimitRead(key string) (keys, argv []string) { return []string{key}, nil }

// DecodeFleetLimit reads the reply of SetLimit. A reply that the script cannot have given is ErrReply.
func DecodeFleetLimit(raw any) (FleetLimit, error) {
	v := valuesOf(raw, 2, "limit")
	limit := v.limit()
	return result(limit, v.err)
}

// printable reports whether text can be a fleet's limit.
func printable(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(text) <= maxLimitText
}

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
func DecodeKeyLimits(raw any) (KeyLimits, error) {
	v := valuesOf(raw, 2, "limits of keys")
	k := KeyLimits{Now: v.natural()}
	text := v.text(MaxKeyLimitBytes)
	if text == "" {
		return result(k, v.err)
	}
	head, rest, _ := strings.Cut(text, "\n")
	version, ok := strings.CutPrefix(head, "1 ")
	n, whole := natural(version)
	k.Version = n
	v.must(ok && whole && n > 0, head)
	for line := range strings.Lines(rest) {
		one, ok := readKeyLimit(line)
		v.must(ok, line)
		k.Of = append(k.Of, one)
	}
	return result(k, v.err)
}

// readKeyLimit is the inverse of line.
func readKeyLimit(line string) (k KeyLimit, ok bool) {
	line, whole := strings.CutSuffix(line, "\n")
	at, rest, two := strings.Cut(line, " ")
	limit, token, three := strings.Cut(rest, " ")
	if k.At, ok = natural(at); !ok || !whole || !two || !three {
		return k, false
	}
	if limit != "-" {
		k.Text = strings.ReplaceAll(limit, "~", " ")
	}
	var err error
	k.Key, err = url.QueryUnescape(token)
	return k, err == nil && k.Key != "" && printable(k.Text) && (k.Text != "" || limit == "-")
}
