package wire

import (
	"fmt"
	"strconv"
)

// values reads the elements of a reply, one after the other. After the first element that the scripts cannot have
// given, all are zero, and err is ErrReply.
type values struct {
	what string // the message that was answered
	rest []any
	err  error
}

func valuesOf(raw any, n int, what string) values {
	list, ok := raw.([]any)
	v := values{what: what, rest: list}
	if !ok || len(list) != n {
		v.err = fmt.Errorf("%w: the answer to %s is a %T of %d elements", ErrReply, what, raw, len(list))
	}
	return v
}

// result returns what was read, or only the error.
func result[T any](read T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return read, nil
}

// fail notes that the scripts cannot have given x.
func (v *values) fail(x any) {
	if v.err == nil {
		v.err = fmt.Errorf("%w: %.200q in the answer to %s", ErrReply, fmt.Sprint(x), v.what)
	}
}

func (v *values) must(ok bool, text string) {
	if !ok {
		v.fail(text)
	}
}

func (v *values) next() (x any) {
	if v.err == nil {
		x, v.rest = v.rest[0], v.rest[1:]
	}
	return x
}

func (v *values) between(least, most int64) int64 {
	x := v.next()
	n, ok := x.(int64)
	if !ok || n < least || n > most {
		v.fail(x)
		return 0
	}
	return n
}

// natural reads an integer from 0 to maxReply.
func (v *values) natural() int64 { return v.between(0, maxReply) }

func (v *values) naturals(n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = v.natural()
	}
	return list
}

// text reads a text of at most so many bytes.
func (v *values) text(most int) string {
	x := v.next()
	text, ok := x.(string)
	if !ok || len(text) > most {
		v.fail(x)
		return ""
	}
	return text
}

// natural reads the decimal digits of a number from 0 to maxReply.
func natural(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err == nil && n <= maxReply
}

// flags returns a number with these bits, the lowest first.
func flags(bits ...bool) (n int64) {
	for i, is := range bits {
		if is {
			n |= 1 << i
		}
	}
	return n
}
