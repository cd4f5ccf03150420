package lua

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Admission is one entry of a sliding log.
type Admission = algo.Entry

// EncodeHistory returns the KEYS and ARGV of History for a key under a sliding
// log.
func EncodeHistory(key string, limit hybridlimit.Limit) (keys, argv []string) {
	return []string{key}, []string{strconv.FormatInt(algo.LogOf(limit).Period, 10)}
}

// DecodeHistory reads the reply to History: what the log has admitted within
// its period, the oldest first, and the time, in µs of Redis time. A key that
// holds no log has admitted nothing.
func DecodeHistory(raw any) (log []Admission, now int64, err error) {
	list, ok := raw.([]any)
	if !ok || len(list) < 2 || len(list)%3 != 2 || list[0] != any(int64(1)) {
		return nil, 0, fmt.Errorf("%w: no history in a %T", ErrReply, raw)
	}
	if now, ok = list[1].(int64); !ok {
		return nil, 0, fmt.Errorf("%w: time is a %T", ErrReply, list[1])
	}
	log = make([]Admission, 0, len(list)/3)
	for i := 2; i < len(list); i += 3 {
		at, ok1 := list[i].(int64)
		units, ok2 := list[i+1].(int64)
		id, ok3 := list[i+2].(string)
		id, err := url.QueryUnescape(id)
		if !ok1 || !ok2 || !ok3 || err != nil || units < 1 {
			return nil, 0, fmt.Errorf("%w: entry %d of a history", ErrReply, len(log))
		}
		log = append(log, Admission{At: at, Units: units, ID: id})
	}
	return log, now, nil
}
