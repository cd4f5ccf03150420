package respguard

import "sync/atomic"

// Kept is the number of bytes that are read of each of a command's first two words.
const Kept = 64

// requests follows the commands that a client sends, to know which replies to expect.
// The zero value is at the start of a command.
type requests struct {
	lost  bool    // the sent bytes are no command
	in    part    // position in a command: atKind before a header, inString in a word
	words int64   // words of the command still to come; 0: the next byte begins a command
	word  int     // the number of the current word
	size  int64   // the number in the current header, as far as it was read
	head  byte    // * or $: the current header
	skip  int64   // bytes of the word still to come, with its line end
	sent  int64   // commands begun
	first [2]text // the first two words

	// last is the number of the last command of each class. The goroutine that reads replies loads it.
	last [classes]atomic.Int64
}

// text is the first bytes of a word.
type text struct {
	bytes [Kept]byte
	n     int
}

func (t *text) String() string { return string(t.bytes[:t.n]) }

// feed follows p and records the class of each command in it.
func (r *requests) feed(p []byte, class func(first, second []byte) Class) {
	for i := 0; i < len(p) && !r.lost; {
		switch r.in {
		case atKind:
			want := byte('$')
			if r.words == 0 {
				want = '*'
			}
			if p[i] != want {
				r.lose()
				return
			}
			r.head, r.size, r.in = want, 0, inLength
			i++
		case inString:
			n := min(r.skip, int64(len(p)-i))
			r.keep(p[i : i+int(n)])
			i += int(n)
			if r.skip -= n; r.skip == 0 {
				r.endWord(class)
			}
		default:
			r.header(p[i])
			i++
		}
	}
}

// header reads a byte of a header, after the first. The client wrote it, so it is not checked like that of a reply.
func (r *requests) header(c byte) {
	switch {
	case c >= '0' && c <= '9' && r.size < 1<<50:
		r.size = 10*r.size + int64(c-'0')
	case c == '\r':
	case c == '\n' && r.head == '$':
		r.in, r.skip = inString, r.size+2
	case c == '\n' && r.size > 0:
		r.in, r.words, r.word = atKind, r.size, 0
		r.first[0].n, r.first[1].n = 0, 0
		r.sent++
	default:
		r.lose()
	}
}

// keep stores the first bytes of the first two words, without the line end.
func (r *requests) keep(p []byte) {
	if r.word >= len(r.first) {
		return
	}
	if past := int64(len(p)) - (r.skip - 2); past > 0 {
		p = p[:max(0, int64(len(p))-past)]
	}
	t := &r.first[r.word]
	t.n += copy(t.bytes[t.n:], p)
}

// endWord ends a word. The class of a command is known after its second one.
func (r *requests) endWord(class func(first, second []byte) Class) {
	r.in = atKind
	r.word++
	r.words--
	if r.word == 2 || r.word == 1 && r.words == 0 {
		c := class(r.first[0].bytes[:r.first[0].n], r.first[1].bytes[:r.first[1].n])
		if c == Stream {
			r.lose()
			return
		}
		r.last[c].Store(r.sent)
	}
}

// lose gives up: every later reply counts as one to a command of class Other.
func (r *requests) lose() {
	r.lost = true
	r.last[Other].Store(1<<63 - 1)
}

// class returns the widest class of the commands that the next reply may answer, after so many replies.
func (r *requests) class(replies int64) Class {
	for c := Other; c > 0; c-- {
		if r.last[c].Load() > replies {
			return c
		}
	}
	return Short
}

// shared reports whether a command of class Other was sent.
func (r *requests) shared() bool { return r.last[Other].Load() > 0 }
