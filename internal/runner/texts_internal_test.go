package runner

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// TestKeptTextsSeeEveryField checks that no field of an op besides its asks changes the
// arguments that are kept for it, also one that is added later.
func TestKeptTextsSeeEveryField(t *testing.T) {
	var have texts
	asks := wire.Op{Key: "k", Limit: hybridlimit.PerSecond(1), Op: algo.Op{Asks: []int64{1}}}
	if !have.keeps(&asks) {
		t.Error("the arguments of an ask are not kept")
	}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[algo.Op]()) {
		op := asks
		switch field := reflect.ValueOf(&op.Op).Elem().Field(i); field.Kind() {
		case reflect.Slice: // Asks
			op.Asks = []int64{1, 1}
		case reflect.Int64:
			field.SetInt(1)
		case reflect.Bool:
			field.SetBool(true)
		case reflect.String:
			field.SetString("x")
		case reflect.Struct:
			field.Field(0).SetInt(1)
		default:
			t.Fatalf("%s is a %v", f.Name, field.Kind())
		}
		_, kept := wire.EncodeBatch(wire.Envelope{}, []wire.Op{asks})
		_, want := wire.EncodeBatch(wire.Envelope{}, []wire.Op{op})
		if have.keeps(&op) && !slices.Equal(kept, want) {
			t.Errorf("an op with %s would get %q, want %q", f.Name, kept, want)
		}
	}
}

// TestTextsAreThoseOfTheBatch checks that the arguments of an ask are those of its
// batch, whatever its key is, also after other asks took its place.
func TestTextsAreThoseOfTheBatch(t *testing.T) {
	var have texts
	for round := range 3 {
		for i := range int64(500) {
			limit := hybridlimit.PerSecond(1 + i%7)
			if i%5 == 0 {
				limit = hybridlimit.SlidingWindow(1+i%7, time.Minute)
			}
			op := wire.Op{Key: fmt.Sprint("key", round, i), Limit: limit, Op: algo.Op{Asks: []int64{1 + i%11}}}
			_, want := wire.EncodeBatch(wire.Envelope{}, []wire.Op{op})
			if got := have.of(&op); !slices.Equal(got, boxed(want)) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	}
}
