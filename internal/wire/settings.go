package wire

import (
	"fmt"
	"strconv"
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
	list, ok := raw.([]any)
	if !ok || len(list) != 2+settingValues*len(settings) {
		return Settings{}, fmt.Errorf("%w: the answer to settings is a %T of %d elements", ErrReply, raw, len(list))
	}
	head, err := naturals(list[:2], 2, "settings")
	if err != nil {
		return Settings{}, err
	}
	s := Settings{Now: head[0], Changed: head[1], Of: make([]Setting, len(settings))}
	for i, was := range settings {
		part := list[2+settingValues*i:]
		flag, err := naturals(part[:2], 2, "settings")
		if err != nil {
			return Settings{}, err
		}
		limit, err := DecodeFleetLimit(part[2:4])
		if err != nil {
			return Settings{}, err
		}
		limit.At = min(limit.At, s.Now)
		version, err := naturals(part[4:5], 1, "settings")
		if err != nil {
			return Settings{}, err
		}
		was.Flag, was.Limit, was.Keys = Flag{flag[0], min(flag[1], s.Now)}, limit, version[0]
		s.Of[i] = was
	}
	return s, nil
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
	v, err := naturals(raw, 2, "switch")
	if err != nil {
		return Flag{}, err
	}
	return Flag{v[0], v[1]}, nil
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
	list, ok := raw.([]any)
	if !ok || len(list) != 2 {
		return FleetLimit{}, fmt.Errorf("%w: the fleet's limit is a %T of %d elements", ErrReply, raw, len(list))
	}
	text, ok := list[0].(string)
	if !ok || !printable(text) {
		return FleetLimit{}, fmt.Errorf("%w: the fleet's limit is %q", ErrReply, list[0])
	}
	at, err := naturals(list[1:], 1, "limit")
	if err != nil {
		return FleetLimit{}, err
	}
	return FleetLimit{Text: text, At: at[0]}, nil
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
