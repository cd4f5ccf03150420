package fallback

import "testing"

// Every kind has words.
func TestKindsHaveWords(t *testing.T) {
	for k := range NumKinds {
		if k.String() == "" || k.Admits() == "" {
			t.Errorf("%d: %q, %q", k, k.String(), k.Admits())
		}
	}
	if k := NumKinds; k.Valid() || k.String() != "Fallback(4)" {
		t.Errorf("%v is valid: %t", k, k.Valid())
	}
}
