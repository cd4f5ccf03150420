package permits_test

import "testing"

func TestProbe(t *testing.T) {
	for _, f := range faults {
		var n, exc, bad int
		var adm, arr, ask int64
		var firsts []string
		for seed := range uint64(2000) {
			o := schedule(f, "", seed)
			n++
			adm += o.admitted
			arr += o.arrived
			ask += o.asked
			if o.excess > 0 {
				exc++
				if len(firsts) < 5 {
					firsts = append(firsts, "excess", string(rune('0'+o.excess)), "seed", itoa(seed))
				}
			}
			if len(o.bad) > 0 {
				bad++
				if len(firsts) < 12 {
					firsts = append(firsts, itoa(seed)+": "+o.bad[0])
				}
			}
		}
		t.Logf("%s: %d schedules, %d excess, %d bad, admitted %d of %d, ops %d", f, n, exc, bad, adm, arr, ask)
		for _, s := range firsts {
			t.Log("   ", s)
		}
	}
}
func itoa(x uint64) string { return string(appendInt(nil, x)) }
func appendInt(b []byte, x uint64) []byte {
	if x >= 10 {
		b = appendInt(b, x/10)
	}
	return append(b, byte('0'+x%10))
}
