//go:build unix

package benchkit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestMeter(t *testing.T) {
	redistest.Need(t)
	srv, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	m := Meter{Redis: srv, Wire: new(Wire)}
	rdb := srv.Client(m.Wire)
	defer rdb.Close()
	ctx := t.Context()
	if err := rdb.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	s, err := m.Commands(ctx, func() error {
		for range 100 {
			if err := rdb.Eval(ctx, "return redis.call('PING')", nil).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	f := s.Per(100)
	if err != nil || s.Calls < 200 || s.Scripts != 100 || s.Messages != 100 || f["messages"] != 1 || f["inner"] < 1 ||
		f["bytes"] != f["sent"]+f["received"] || f["sent"] < 20 || s.Wall <= 0 || f["cpu"] < 0 || f["process"] < 0 {
		t.Errorf("%+v, %v, %v", s, f, err)
	}
	failed := errors.New("failed")
	if _, err := m.Spent(ctx, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	other := Meter{Process: func() (time.Duration, error) { return 0, failed }}
	if _, err := other.Spent(ctx, func() error { return nil }); !errors.Is(err, failed) {
		t.Errorf("no error of a process without CPU time: %v", err)
	}
}

func TestServe(t *testing.T) {
	serve := func(in io.Reader, out io.Writer) error {
		return Serve(t.Context(), in, out, func(_ context.Context, n int) (any, error) {
			if n == 0 {
				return nil, errors.New("nothing")
			}
			return n + 1, nil
		})
	}
	in, requests := io.Pipe()
	replies, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serve(in, out) }()
	for request, want := range map[string]string{"1\n": `{"Reply":2,"Err":""}` + "\n", "0\n": `{"Reply":null,"Err":"nothing"}` + "\n"} {
		if _, err := io.WriteString(requests, request); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(replies, got); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", request, got, err)
		}
	}
	requests.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := serve(strings.NewReader("x"), &bytes.Buffer{}); err == nil {
		t.Error("no error for a malformed request")
	}
}

func TestSpread(t *testing.T) {
	failed := errors.New("failed")
	done := make([]bool, 3)
	err := Spread(3, func(i int) error {
		done[i] = true
		if i == 1 {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) || !done[0] || !done[1] || !done[2] {
		t.Errorf("%v, %v", done, err)
	}
}
