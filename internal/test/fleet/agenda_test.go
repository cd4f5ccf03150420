package fleet

import (
	"slices"
	"testing"
)

// TestOrder checks the order of the functions, and the time at each of them.
func TestOrder(t *testing.T) {
	var a Agenda
	var ran []int
	var at []int64
	plan := func(when int64, name int) {
		a.At(when, func() { ran, at = append(ran, name), append(at, a.Now) })
	}
	plan(5, 3)
	plan(2, 1)
	plan(5, 4)
	a.At(3, func() {
		plan(1, 2) // over
		a.After(2, func() { plan(5, 6) })
	})
	plan(5, 5)
	plan(9, 7)
	a.Run(8)
	if want := []int{1, 2, 3, 4, 5, 6}; !slices.Equal(ran, want) {
		t.Errorf("%v, want %v", ran, want)
	}
	if want := []int64{2, 3, 5, 5, 5, 5}; !slices.Equal(at, want) {
		t.Errorf("at %v, want %v", at, want)
	}
	if a.Now != 8 {
		t.Errorf("it is %d", a.Now)
	}
	if a.Run(9); ran[len(ran)-1] != 7 {
		t.Errorf("%v", ran)
	}
}
