package httplimit

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers-11, section 5.
const (
	// TypeQuotaExceeded is the type of a denial.
	TypeQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	// TypeReducedCapacity is the type of a 503: nobody could tell whether the
	// quota is exceeded. Other statuses than 429 and 503 have no type.
	TypeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Denial is why a request may not proceed.
type Denial struct {
	// Status is 429; 503 where no limiter could tell; 400 where the request's key
	// or cost is one that no limiter takes; or that of Config.NoKey.
	Status int
	// Policies are the violated ones, by the names that RateLimit has, in the
	// order of the limits. Limits that are asked one after the other have one at
	// most; of those that are asked together some may not be known. Empty: none
	// is known to be.
	Policies []string
	// RetryAfter is what the field of that name says: whole seconds, 0 where it
	// is left out because waiting does not help or nobody knows.
	RetryAfter time.Duration
	// Result is that of the limit that denied, with the longest RetryAfter if
	// there are more; zero where none did.
	Result hybridlimit.Result
	// Err is the failure; nil for the denial of a limiter. It is ErrNoLimit or
	// ErrNoKey for a request without a key. Its text may have the key in it.
	Err error
}

// Problem answers with a problem of RFC 9457. It is what Config.Denied does
// unless it is set. It tells nothing of Err.
func Problem(w http.ResponseWriter, _ *http.Request, d Denial) {
	p := problem{Type: TypeQuotaExceeded, Title: "Quota Exceeded", Status: d.Status, Policies: d.Policies}
	switch {
	case errors.Is(d.Err, ErrNoLimit), errors.Is(d.Err, ErrNoKey):
		p.Type, p.Title = "", http.StatusText(d.Status) // no type is about:blank
		p.Detail = "The request lacks the key that it is counted by."
	case d.Status == http.StatusServiceUnavailable:
		p.Type, p.Title = TypeReducedCapacity, "Temporary Reduced Capacity"
	case d.Status != http.StatusTooManyRequests:
		p.Type, p.Title = "", http.StatusText(d.Status)
		p.Detail = "The request has a key or a cost that cannot be counted."
	case d.Result.RetryAfter == hybridlimit.Never:
		p.Detail = "The request costs more than the quota can ever hold."
	}
	body, err := json.Marshal(p)
	if err != nil { // strings and a number: it cannot be
		http.Error(w, p.Title, d.Status)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(d.Status)
	w.Write(append(body, '\n'))
}

// problem is the body.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Policies []string `json:"violated-policies,omitempty"`
}

// deny answers for a limit that denied.
func (g *gate) deny(w http.ResponseWriter, r *http.Request, parts []part, denied int) {
	p := &parts[denied]
	d := Denial{Status: http.StatusTooManyRequests, Result: p.res}
	for i := range parts {
		if one := &parts[i]; one.res.Source != hybridlimit.SourceUnknown && !one.res.Allowed || i == denied {
			d.Policies = append(d.Policies, one.policyName())
		}
	}
	// Nobody has shown that the quota is exceeded. A process that limits itself
	// to its share has: a client that is over it is no failing server.
	if p.unavailable || p.res.Source == hybridlimit.SourceTimeout {
		d.Status = http.StatusServiceUnavailable
	}
	retry := g.retryAfter(&p.res)
	d.RetryAfter = time.Duration(min(retry, int64(hybridlimit.Never/time.Second))) * time.Second
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	g.publishDenial(h, parts, denied, retry)
	g.cfg.Denied(w, r, d)
}

// policyName is what fields and problems call the part's policy.
func (p *part) policyName() string {
	return cmp.Or(p.name, p.res.Policy, defaultName)
}

// refuse answers for limits that gave no answer, or that were not asked.
func (g *gate) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	h := w.Header()
	withdraw(h)
	h.Set("Cache-Control", "no-store")
	g.cfg.Denied(w, r, Denial{Status: status, Err: err})
}
