package wire_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Calls that are admitted while pages are read do not make the reader read more pages.
func TestReadHistory(t *testing.T) {
	entry := func(at int64) wire.Admission { return wire.Admission{At: at, Units: at, ID: fmt.Sprint(at)} }
	for name, tc := range map[string]struct {
		pages []wire.Page
		want  string // the ids
		calls int
	}{
		"nothing":               {[]wire.Page{{}}, "", 1},
		"one page":              {[]wire.Page{{Left: 2, Log: []wire.Admission{entry(1), entry(2)}}}, "1 2", 1},
		"two, and some arrived": {[]wire.Page{{Left: 3, Log: []wire.Admission{entry(1), entry(2)}}, {Left: 9, Log: []wire.Admission{entry(3), entry(4)}}}, "1 2 3", 2},
		"two, and some left":    {[]wire.Page{{Left: 5, Log: []wire.Admission{entry(1), entry(2)}}, {Left: 1, Log: []wire.Admission{entry(5)}}}, "1 2 5", 2},
		"the rest left":         {[]wire.Page{{Left: 5, Log: []wire.Admission{entry(1), entry(2)}}, {}}, "1 2", 2},
	} {
		calls, after := 0, int64(0)
		log, err := wire.ReadHistory(func(at int64) (wire.Page, error) {
			if at != after {
				t.Errorf("%s: page %d is after %d, want %d", name, calls, at, after)
			}
			p := tc.pages[calls]
			if calls++; len(p.Log) > 0 {
				after = p.Log[len(p.Log)-1].At
			}
			return p, nil
		})
		var ids []string
		for _, a := range log {
			ids = append(ids, a.RequestID)
			if fmt.Sprint(a.At.UnixMicro()) != a.RequestID || fmt.Sprint(a.Units) != a.RequestID {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if got := strings.Join(ids, " "); err != nil || got != tc.want || calls != tc.calls {
			t.Errorf("%s: %s in %d calls, %v", name, got, calls, err)
		}
	}
	cause := errors.New("gone")
	pages := 0
	log, err := wire.ReadHistory(func(int64) (wire.Page, error) {
		if pages++; pages > 1 {
			return wire.Page{}, cause
		}
		return wire.Page{Left: 5, Log: []wire.Admission{entry(1)}}, nil
	})
	if !errors.Is(err, cause) || log != nil {
		t.Errorf("%v, %v", log, err)
	}
}

// DecodeHistory never panics, and it accepts admissions only.
func FuzzDecodeHistory(f *testing.F) {
	f.Add("1,9")
	f.Add("1,9,2,1763,2,sa+b,1764,1,s")
	f.Add("1,9,1,1763,0,s")
	f.Add("2,n,f,s%zz")
	f.Fuzz(func(t *testing.T, text string) {
		var raw []any
		for field := range strings.SplitSeq(text, ",") {
			var v int64
			switch _, err := fmt.Sscan(field, &v); {
			case err == nil:
				raw = append(raw, v)
			case strings.HasPrefix(field, "s"):
				raw = append(raw, field[1:])
			case field == "f":
				raw = append(raw, 1.5)
			default:
				raw = append(raw, nil)
			}
		}
		page, err := wire.DecodeHistory(raw)
		if err != nil {
			if !errors.Is(err, wire.ErrReply) || page.Log != nil {
				t.Errorf("%v beside %v", page, err)
			}
			return
		}
		if len(page.Log) != (len(raw)-3)/3 || page.Left < int64(len(page.Log)) {
			t.Errorf("%d entries and Left = %d from %d fields", len(page.Log), page.Left, len(raw))
		}
		for _, a := range page.Log {
			if a.Units < 1 {
				t.Errorf("%+v", a)
			}
		}
	})
}

// The bound on a reply assumes the longest possible request id.
func TestRequestIDsAreBounded(t *testing.T) {
	longest := 0
	for {
		if _, err := hybridlimit.WithRequestID(context.Background(), strings.Repeat("x", longest+1)); err != nil {
			break
		}
		longest++
	}
	if longest != wire.MaxRequestID {
		t.Errorf("a request id has up to %d bytes, but MaxReplyBytes assumes %d", longest, wire.MaxRequestID)
	}
}
