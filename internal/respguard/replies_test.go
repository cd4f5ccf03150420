package respguard

import (
	"strings"
	"testing"
)

var small = Limits{Values: 20, Bytes: 400, Depth: 5}

func always(l *Limits) func(bool) *Limits { return func(bool) *Limits { return l } }

// passed feeds a stream in pieces of the sizes that cut gives, and returns the bytes that
// passed.
func passed(stream string, l *Limits, cut func() int) (string, error) {
	var r replies
	var b strings.Builder
	for rest := []byte(stream); len(rest) > 0; {
		n := min(max(1, cut()), len(rest))
		ok, err := r.feed(rest[:n], always(l))
		b.Write(rest[:ok])
		if err != nil {
			return b.String(), err
		}
		rest = rest[n:]
	}
	return b.String(), nil
}

// valid lists replies that the small limits permit.
var valid = []string{
	"+OK\r\n", "-ERR no\r\n", ":-12\r\n", "_\r\n", "#t\r\n", ",1.5e3\r\n", ",-inf\r\n", "(12345678901234567890\r\n",
	"$0\r\n\r\n", "$5\r\nhello\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$4\r\n\r\n*9\r\n", "=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n",
	"*2\r\n:1\r\n$2\r\nab\r\n", "%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "*2\r\n*0\r\n*-1\r\n", "*3\r\n$-1\r\n_\r\n%0\r\n",
	">2\r\n+message\r\n$1\r\nx\r\n:1\r\n", "|1\r\n+ttl\r\n:3\r\n:7\r\n", "|0\r\n|0\r\n*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n",
	"*19\r\n" + strings.Repeat(":1\r\n", 19), "+" + strings.Repeat("x", 397) + "\r\n"[:1] + "\n", "$391\r\n" + strings.Repeat("x", 391) + "\r\n",
}

// refused lists replies that the small limits refuse.
var refused = []string{
	"*20\r\n", "*9223372036854775807\r\n", "*100000000\r\n", "%10\r\n", "%4611686018427387904\r\n", "~20\r\n", ">20\r\n", "|10\r\n",
	"*10\r\n*10\r\n", "$400\r\n", "$9223372036854775806\r\n", "$536870912\r\n", "=400\r\n", "!400\r\n", "*2\r\n$200\r\n" + strings.Repeat("x", 200) + "\r\n$200\r\n",
	"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "|0\r\n|0\r\n|0\r\n|0\r\n|0\r\n", "|1\r\n|1\r\n|1\r\n|1\r\n|1\r\n", "%1\r\n%1\r\n%1\r\n%1\r\n%1\r\n",
	"*-2\r\n", "*-7\r\n", "$-7\r\n", "$--1\r\n", "$-\r\n", "|-1\r\n", "$\r\n", "*\r\n", "*?\r\n", "$?\r\n", "*+1\r\n", "* 1\r\n", "*1 \r\n", "*1\n", "*1\r1\n", "*1\r\r\n",
	";4\r\n", ".\r\n", "\r\n", "\x00", "HTTP/1.1 400\r\n", "+" + strings.Repeat("x", 399) + "\n",
	"*" + strings.Repeat("0", 16) + "\r\n",
}

func TestValidRepliesPassHoweverTheyAreCut(t *testing.T) {
	stream := strings.Join(valid, "")
	for size := range 40 {
		if got, err := passed(stream, &small, func() int { return size }); got != stream || err != nil {
			t.Fatalf("in pieces of %d: %d of %d bytes, %v", size, len(got), len(stream), err)
		}
	}
	for _, reply := range valid {
		for at := range len(reply) {
			sizes := []int{at + 1, len(reply)}
			cut := func() int { n := sizes[0]; sizes = sizes[1:]; return n }
			if got, err := passed(reply, &small, cut); got != reply || err != nil {
				t.Errorf("%.40q, cut after %d: passed %d bytes, %v", reply, at+1, len(got), err)
			}
		}
	}
}

func TestRefusedRepliesDoNotPass(t *testing.T) {
	for _, reply := range refused {
		for _, before := range []string{"", ":1\r\n", "*2\r\n:1\r\n:2\r\n"} {
			for size := range 20 {
				got, err := passed(before+reply, &small, func() int { return size })
				if err == nil || !strings.HasPrefix(before+reply, got) || len(got) >= len(before+reply) {
					t.Errorf("%.40q in pieces of %d: passed %d of %d bytes, %v", before+reply, size, len(got), len(before+reply), err)
				}
			}
		}
	}
}

// A refused reply keeps no memory for levels that were not opened.
func TestDepthIsBounded(t *testing.T) {
	var r replies
	deep := Limits{Values: 1 << 40, Bytes: 1 << 40, Depth: 1000}
	n, err := r.feed([]byte(strings.Repeat("*1\r\n", 1<<16)), always(&deep))
	if err == nil || n >= 4*1000 || len(r.left) > 1000 {
		t.Errorf("passed %d bytes, %d levels, %v", n, len(r.left), err)
	}
}

func TestRepliesAreCountedWithoutPushes(t *testing.T) {
	var r replies
	stream := strings.Join(valid, "")
	if _, err := r.feed([]byte(stream), always(&small)); err != nil {
		t.Fatal(err)
	}
	if want := int64(len(valid)); r.done != want { // a push and a number are two replies, of which one counts
		t.Errorf("%d replies, want %d", r.done, want)
	}
}
