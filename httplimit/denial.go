package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers-11, section 5.
const (
	// TypeQuotaExceeded is the type of a denial.
	TypeQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	// TypeReducedCapacity is the type of a 503: it is unknown whether the quota is exceeded, or the request was shed.
	// Statuses other than 429 and 503 have no type.
	TypeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Denial is the reason why a request does not reach the handler.
type Denial struct {
	// Status is 429 for a denial, 503 without a decision or if Config.Shedder sheds the request, 400 for an invalid key
	// or cost, or the status of Config.NoKey.
	Status int
	// Policies has the names of the violated policies, in the order of the limits. It has at most one name if the
	// limits were asked one after the other. If they were asked together, some violated policies may be missing. Empty:
	// no policy is known to be violated.
	Policies []string
	// RetryAfter is the value of the Retry-After field, in whole seconds. Zero: the field is left out, because waiting
	// does not help or the wait is unknown.
	RetryAfter time.Duration
	// Result is the result of the limit that denied, or of the one with the longest RetryAfter if several did, or of
	// the Shedder: then its Source is SourceShed. Zero: none of them denied.
	Result hybridlimit.Result
	// Err is the failure. It matches ErrNoLimit or ErrNoKey for a request without a key. Its text may contain the key.
	// Nil: a limit denied, or the Shedder.
	Err error
}

// Problem answers with a problem of RFC 9457. It is the default of Config.Denied. The answer contains nothing of Err.
// That to a request without a key has no type.
func Problem(w http.ResponseWriter, _ *http.Request, d Denial) {
	p := problem{Type: TypeQuotaExceeded, Title: "Quota Exceeded", Status: d.Status, Policies: d.Policies}
	switch {
	case errors.Is(d.Err, ErrNoLimit), errors.Is(d.Err, ErrNoKey):
		p.Type, p.Title = "", http.StatusText(d.Status) // without a type it is about:blank
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
	if err != nil { // impossible: problem has strings and a number
		http.Error(w, p.Title, d.Status)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(d.Status)
	w.Write(append(body, '\n'))
}

// problem is the body of an answer.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Policies []string `json:"violated-policies,omitempty"`
}

// deny answers a request that a limit denied.
func (g *middleware) deny(w http.ResponseWriter, r *http.Request, parts []gate.Part, denied int) {
	p := &parts[denied]
	d := Denial{Status: http.StatusTooManyRequests, Result: p.Res}
	for i := range parts {
		if one := &parts[i]; one.Res.Source != hybridlimit.SourceUnknown && !one.Res.Allowed || i == denied {
			d.Policies = append(d.Policies, one.PolicyName())
		}
	}
	// The status is 503 if it is unknown whether the quota is exceeded. A denial by the fallback's share of the limit
	// is a 429: the client is above that share.
	if p.Unavailable || p.Res.Source == hybridlimit.SourceTimeout {
		d.Status = http.StatusServiceUnavailable
	}
	retry := g.retryAfter(&p.Res)
	d.RetryAfter = time.Duration(min(retry, int64(hybridlimit.Never/time.Second))) * time.Second
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	g.publishDenial(h, parts, denied, retry)
	g.cfg.Denied(w, r, d)
}

// statusOf returns the status of a request for which a limiter returned err.
func statusOf(err error) int {
	if gate.BadRequest(err) {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// refuse answers a request that no limit decided.
func (g *middleware) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	h := w.Header()
	withdraw(h)
	h.Set("Cache-Control", "no-store")
	g.cfg.Denied(w, r, Denial{Status: status, Err: err})
}

// place asks the Shedder for a place for a request that the limits have admitted. ok is false if the request has its
// answer.
func (g *middleware) place(w http.ResponseWriter, r *http.Request, class string, parts []gate.Part) (permit hybridlimit.Permit, ok bool) {
	permit, res, err := g.gate.Place(r.Context(), g.cfg.Shedder, class, parts)
	switch {
	case err != nil:
		g.refuse(w, r, http.StatusServiceUnavailable, err)
	case !res.Allowed:
		g.shed(w, r, res)
	default:
		return permit, true
	}
	return permit, false
}

// shed answers a request that the Shedder has shed. It is a 503, because the client has not exceeded a quota.
func (g *middleware) shed(w http.ResponseWriter, r *http.Request, res hybridlimit.Result) {
	d := Denial{Status: http.StatusServiceUnavailable, Result: res}
	retry := g.retryAfter(&res)
	d.RetryAfter = time.Duration(min(retry, int64(hybridlimit.Never/time.Second))) * time.Second
	h := w.Header()
	withdraw(h)
	h.Set("Cache-Control", "no-store")
	if retry > 0 {
		h[fieldRetryAfter] = []string{strconv.FormatInt(retry, 10)}
	}
	g.cfg.Denied(w, r, d)
}
