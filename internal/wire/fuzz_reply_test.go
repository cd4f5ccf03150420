package wire_test

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// values makes a reply from bytes, of every type that go-redis can return. The first byte
// is the type of a value, the others are its content.
func values(data []byte, depth int) (v any, rest []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	kind, data := data[0], data[1:]
	number := func() int64 {
		var b [8]byte
		n := copy(b[:], data)
		data = data[n:]
		return int64(binary.LittleEndian.Uint64(b[:]))
	}
	switch {
	case kind < 100: // a small number, as most are
		return int64(kind), data
	case kind < 120:
		v = number()
		return v, data
	case kind < 130:
		return float64(number()), data
	case kind < 140 && len(data) > 0:
		n := min(int(data[0]), len(data)-1)
		return string(data[1 : 1+n]), data[1+n:]
	case kind < 145:
		return kind%2 == 0, data
	case kind < 150:
		return errors.New("ERR"), data
	case kind < 155:
		return nil, data
	case kind < 160:
		return map[any]any{"a": number()}, data
	}
	var list []any
	for n := int(kind) - 160; n > 0 && len(data) > 0 && depth > 0; n-- {
		var one any
		one, data = values(data, depth-1)
		list = append(list, one)
	}
	return list, data
}

// FuzzReplies checks that every reply decodes to an answer or to an error. The numbers of
// an answer are in the range of exact arithmetic.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{164, 1, 0, 5, 9}, uint8(0))
	f.Add([]byte{174, 1, 1, 5, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, uint8(1))
	f.Add([]byte{174, 1, 0, 5, 9, 110, 255, 255, 255, 255, 255, 255, 255, 127, 2, 3, 4, 5, 6, 7, 8, 9, 10}, uint8(1))
	f.Add([]byte{165, 1, 2, 3, 4, 5}, uint8(2))
	f.Add([]byte{162, 161, 1, 131, 3, 65, 66, 67}, uint8(3))
	f.Add([]byte{166, 1, 9, 1, 17, 1, 131, 1, 65}, uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, ops uint8) {
		raw, _ := values(data, 3)
		n := int(ops) % 8
		r, err := wire.DecodeReply(raw, blank(n))
		switch {
		case err != nil:
			if !errors.Is(err, wire.ErrReply) || len(r.Answers) > 0 {
				t.Errorf("%v: %+v, %v", raw, r, err)
			}
		case r.Stale != (len(r.Answers) == 0) && n > 0 || !r.Stale && len(r.Answers) != n:
			t.Errorf("%v: %d answers to %d ops, stale %v", raw, len(r.Answers), n, r.Stale)
		}
		const most = math.MaxInt64 / 1000 // of µs, in ns
		for _, a := range r.Answers {
			for _, v := range []int64{a.Granted, a.Lease, a.Life, a.Retry, a.Born, a.Cap, a.Delay, a.Refill, a.Ends} {
				if v < 0 || v > most {
					t.Errorf("%v: %+v", raw, a)
				}
			}
			if a.Level > most || a.Level < -most {
				t.Errorf("%v: %+v", raw, a)
			}
		}
		for _, p := range []wire.Pulse{{}, asked} {
			if b, err := wire.DecodeBeat(raw, p); err != nil && (!errors.Is(err, wire.ErrReply) || !reflect.DeepEqual(b, wire.Beat{})) || b.Alive < 0 || b.Version < 0 || b.Now < 0 || b.Now > most {
				t.Errorf("%v: %+v, %v", raw, b, err)
			}
		}
		if s, err := wire.DecodeSettings(raw, make([]wire.Setting, 1)); err != nil && (!errors.Is(err, wire.ErrReply) || s.Of != nil) || s.Now < 0 || s.Changed < 0 {
			t.Errorf("%v: %+v, %v", raw, s, err)
		}
		if s, err := wire.DecodeSwitch(raw); err != nil && (!errors.Is(err, wire.ErrReply) || s != (wire.Flag{})) || s.Switch < 0 || s.At < 0 {
			t.Errorf("%v: %+v, %v", raw, s, err)
		}
		pages := 0
		log, err := wire.ReadHistory(func(int64) (wire.Page, error) {
			if pages++; pages > 3 {
				t.Fatalf("%v: ReadHistory asks for a fourth page", raw)
			}
			return wire.DecodeHistory(raw)
		})
		if err != nil && (!errors.Is(err, wire.ErrReply) || log != nil) {
			t.Errorf("%v: %v, %v", raw, log, err)
		}
	})
}
