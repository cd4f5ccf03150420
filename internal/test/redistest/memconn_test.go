package redistest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemConnDataThenEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memPipe()
		big := bytes.Repeat([]byte("x"), 1<<20)
		if n, err := a.Write(big); n != len(big) || err != nil {
			t.Fatalf("Write = %d, %v; want all bytes written without a reader", n, err)
		}
		a.Close()
		if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, big) {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing to a closed end: %v", err)
		}
		b.Close()
	})
}

func TestMemConnCloseWakesReaders(t *testing.T) {
	for name, tt := range map[string]struct {
		close func(near, far *memConn)
		want  error
	}{
		"own end":    {func(near, far *memConn) { near.Close() }, net.ErrClosed},
		"other end":  {func(near, far *memConn) { far.Close() }, io.EOF},
		"half close": {func(near, far *memConn) { far.CloseWrite() }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := memPipe()
				var readers sync.WaitGroup
				for range 2 {
					readers.Go(func() {
						if _, err := near.Read(make([]byte, 1)); !errors.Is(err, tt.want) {
							t.Errorf("Read: %v, want %v", err, tt.want)
						}
					})
				}
				synctest.Wait()
				tt.close(near, far)
				readers.Wait()
			})
		})
	}
}

func TestMemConnResetTakesData(t *testing.T) {
	a, b := memPipe()
	a.Write([]byte("unread"))
	a.SetLinger(0)
	a.Close()
	if _, err := b.Read(make([]byte, 8)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read after a reset: %v", err)
	}
	if _, err := b.Read(make([]byte, 8)); err != io.EOF {
		t.Errorf("the Read after that: %v", err)
	}
}

func TestMemConnHalfClose(t *testing.T) {
	a, b := memPipe()
	a.Write([]byte("last words"))
	a.CloseWrite()
	if got, err := io.ReadAll(b); string(got) != "last words" || err != nil {
		t.Fatalf("read %q, %v", got, err)
	}
	b.Write([]byte("answer"))
	b.Close()
	if got, err := io.ReadAll(a); string(got) != "answer" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestMemConnClosed(t *testing.T) {
	a, _ := memPipe()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"Close":       a.Close(),
		"SetDeadline": a.SetDeadline(time.Now()),
		"Write":       second(a.Write([]byte("x"))),
		"Read":        second(a.Read(make([]byte, 1))),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func second(_ int, err error) error { return err }

func TestMemConnReadDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memPipe()
		start := time.Now()
		a.SetReadDeadline(start.Add(50 * time.Millisecond))
		_, err := a.Read(make([]byte, 1))
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read: %v", err)
		}
		if d := time.Since(start); d != 50*time.Millisecond {
			t.Errorf("after %s, want 50ms", d)
		}
		b.Write([]byte("x"))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read after the deadline, with data = %v, want a time-out", err)
		}
		a.SetReadDeadline(time.Time{})
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("after the deadline was lifted: %d, %v", n, err)
		}
		a.SetReadDeadline(time.Now().Add(-1))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a deadline in the past: %v", err)
		}
	})
}

// A deadline that is moved while a reader waits applies to that reader.
func TestMemConnMovedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := memPipe()
		start := time.Now()
		a.SetReadDeadline(start.Add(time.Second))
		done := make(chan time.Duration)
		go func() {
			a.Read(make([]byte, 1))
			done <- time.Since(start)
		}()
		synctest.Wait()
		a.SetReadDeadline(start.Add(3 * time.Second))
		if d := <-done; d != 3*time.Second {
			t.Errorf("the reader woke after %s", d)
		}
	})
}

func TestMemConnWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := memPipe()
		a.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := a.Write([]byte("x")); err != nil {
			t.Errorf("before the deadline: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := a.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("at the deadline: %v", err)
		}
	})
}
