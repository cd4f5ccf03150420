package accuracy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// args are the remaining words of a line.
type args []string

var errMissing = errors.New("something is missing at the end")

func (a *args) next() (string, error) {
	if len(*a) == 0 {
		return "", errMissing
	}
	word := (*a)[0]
	*a = (*a)[1:]
	return word, nil
}

// count reads a whole number of at least 1.
func (a *args) count() (int, error) {
	word, err := a.next()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a whole number of at least 1", word)
	}
	return n, nil
}

// fromTo reads the least and the largest of a range of whole numbers.
func (a *args) fromTo() (least, most int, err error) {
	if least, err = a.count(); err == nil {
		most, err = a.count()
	}
	if err == nil && most < least {
		err = fmt.Errorf("%d is below %d", most, least)
	}
	return least, most, err
}

// number reads a number of at least 0; 5% is 0.05.
func (a *args) number() (float64, error) {
	word, err := a.next()
	if err != nil {
		return 0, err
	}
	digits, percent := strings.CutSuffix(word, "%")
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(x >= 0) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%q is not a number of at least 0", word)
	}
	if percent {
		x /= 100
	}
	return x, nil
}

// numbers reads one or more numbers, all different.
func (a *args) numbers() (all []float64, err error) {
	for {
		rest := *a
		x, err := a.number()
		switch {
		case err != nil && len(all) > 0:
			*a = rest
			return all, nil
		case err != nil:
			return nil, err
		case slices.Contains(all, x):
			return nil, fmt.Errorf("%s is there twice", number(x))
		}
		all = append(all, x)
	}
}

// factors reads one or more load factors.
func (a *args) factors() ([]float64, error) {
	all, err := a.numbers()
	if err == nil && slices.Contains(all, 0) {
		err = errors.New("a factor of 0 is no load")
	}
	return all, err
}

func (a *args) duration() (time.Duration, error) {
	word, err := a.next()
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration above 0, such as 500us or 20s", word)
	}
	return d, nil
}

// pairs reads names to the end of the line. names has, for each name, the function that reads its value.
func (a *args) pairs(names map[string]func() error) error {
	for len(*a) > 0 {
		name, _ := a.next()
		read, ok := names[name]
		if !ok {
			return fmt.Errorf("unknown %q (there are: %s)", name, oneOf(names))
		}
		if err := read(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// kinds reads words of kinds to the end of the line.
func (a *args) kinds(known []string) (all []string, err error) {
	for len(*a) > 0 {
		kind, _ := a.next()
		if !slices.Contains(known, kind) {
			return nil, fmt.Errorf("unknown kind %q (there are: %s)", kind, strings.Join(known, ", "))
		}
		if slices.Contains(all, kind) {
			return nil, fmt.Errorf("%s is there twice", kind)
		}
		all = append(all, kind)
	}
	if len(all) == 0 {
		return nil, errMissing
	}
	return all, nil
}

// rest returns the other words.
func (a *args) rest() string {
	text := strings.Join(*a, " ")
	*a = nil
	return text
}

// limit takes the other words as a limit, as hybridlimit.ParseLimit does: one of calls in flight, or one
// of a rate that counts.
func (a *args) limit(flying bool) (hybridlimit.Limit, error) {
	if len(*a) == 0 {
		return hybridlimit.Limit{}, errMissing
	}
	text := a.rest()
	limit, err := hybridlimit.ParseLimit(text)
	switch alg := limit.Algorithm; {
	case err != nil:
	case flying != (alg == hybridlimit.AlgConcurrent):
		err = fmt.Errorf("%q is no limit of %s", text, map[bool]string{true: "calls in flight", false: "a rate"}[flying])
	case alg == hybridlimit.AlgUnlimited || alg == hybridlimit.AlgBlocked:
		err = fmt.Errorf("%q counts nothing", alg)
	}
	return limit, err
}
