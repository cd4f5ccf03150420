package main

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// recorder keeps a response for the page. If the browser itself got a 429, it would log an error to its console each
// time.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

// Header is part of http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader is part of http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write is part of http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

func (r *recorder) answer(res hybridlimit.Result) answer {
	a := answer{Status: r.status, Headers: [][2]string{}, Body: strings.TrimSpace(r.body.String()), Delay: res.Delay.Milliseconds()}
	for name, values := range r.header {
		for _, v := range values {
			a.Headers = append(a.Headers, [2]string{name, v})
		}
	}
	slices.SortFunc(a.Headers, func(x, y [2]string) int { return strings.Compare(x[0], y[0]) })
	return a
}

// tellFirst calls tell before the first byte of a response, so that pages show the effect of a request while it is
// answered.
type tellFirst struct {
	http.ResponseWriter
	tell func()
}

// WriteHeader is part of http.ResponseWriter.
func (t *tellFirst) WriteHeader(status int) {
	t.once()
	t.ResponseWriter.WriteHeader(status)
}

// Write is part of http.ResponseWriter.
func (t *tellFirst) Write(p []byte) (int, error) {
	t.once()
	return t.ResponseWriter.Write(p)
}

func (t *tellFirst) once() {
	if t.tell != nil {
		t.tell()
		t.tell = nil
	}
}
