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

// TestPlainSeesEveryField checks that an op with any field besides its asks is not
// plain, also one with a field that is added later.
func TestPlainSeesEveryField(t *testing.T) {
	if !plain(&algo.Op{Asks: []int64{1}}) {
		t.Error("an ask is not plain")
	}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[algo.Op]()) {
		if f.Name == "Asks" {
			continue
		}
		var op algo.Op
		switch field := reflect.ValueOf(&op).Elem().Field(i); field.Kind() {
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
		if plain(&op) {
			t.Errorf("an op with %s is plain", f.Name)
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
