package respguard

import "sync/atomic"

// Kept is how many bytes of each of a command's first two words are looked at.
const Kept = 64

// requests follows what a client sends, to know what it will be told. The zero
// value is at the start of a command.
type requests struct {
	lost  bool    // what is sent is no command
	in    part    // of a command: atKind is before a header, inString within a word
	words int64   // of the command that are to come; 0: the next byte begins one
	word  int     // the one that it is in
	size  int64   // that a header says, as far as it was read
	head  byte    // * or $: the header that it is in
	skip  int64   // bytes of the word that are to come, with its line end
	sent  int64   // commands begun
	first [2]text // the first two words

	// last is, for each class, the number of the last command of it; read by
	// whoever reads replies.
	last [classes]atomic.Int64
}

// text is the begin of a word.
type text struct {
	bytes [Kept]byte
	n     int
}

func (t *text) String() string { return string(t.bytes[:t.n]) }

// feed follows p, and notes the class of each command that begins there.
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

// header reads a byte of a header, after the first. It is written by a client,
// so it is not checked as one of a reply is.
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

// keep notes the begin of the first two words. The line end is not part of one.
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

// lose gives up: every reply from now on may be one to anything.
func (r *requests) lose() {
	r.lost = true
	r.last[Other].Store(1<<63 - 1)
}

// class is the widest class of the commands that the next reply may be to, when
// so many replies have come.
func (r *requests) class(replies int64) Class {
	for c := Other; c > 0; c-- {
		if r.last[c].Load() > replies {
			return c
		}
	}
	return Short
}

// shared reports whether commands of others have been sent.
func (r *requests) shared() bool { return r.last[Other].Load() > 0 }
