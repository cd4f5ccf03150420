package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// order returns a handler that reads an order and executes it.
func order[Q any](do func(Q) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if read(w, r, &q) {
			reply(w, struct{}{}, do(q))
		}
	}
}

// maxBody is the largest body of an order in bytes, far more than any needs.
const maxBody = 4 << 10

var errUnreadable = errors.New("the request cannot be read")

// read reads an order into the value that q points to. If the order cannot be read, read answers the request and
// returns false.
func read(w http.ResponseWriter, r *http.Request, q any) bool {
	body, err := content(w, r)
	if err == nil {
		err = decode(body, q)
	}
	if err != nil {
		reply(w, nil, err)
	}
	return err == nil
}

func content(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("playground: %w: %w", errUnreadable, err)
	}
	return body, nil
}

// decode reads one JSON object, with nothing after it. Unknown fields are an error.
func decode(body []byte, q any) error {
	from := json.NewDecoder(bytes.NewReader(body))
	from.DisallowUnknownFields()
	err := from.Decode(q)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return wrongType(wrong)
	case err != nil:
		return fmt.Errorf("playground: %w: %w", errUnreadable, err)
	}
	if _, err := from.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("playground: %w: something follows its first value", errUnreadable)
	}
	return nil
}

// wrongType converts an error of encoding/json about Go types to one about the field.
func wrongType(e *json.UnmarshalTypeError) error {
	literal, number := strings.CutPrefix(e.Value, "number ")
	integer := e.Type.Kind() >= reflect.Int && e.Type.Kind() <= reflect.Int64
	if e.Field == "" || !number && !integer {
		return fmt.Errorf("playground: %w: %s is of type %s", errUnreadable, cmp.Or(e.Field, "it"), e.Value)
	}
	var bad hybridlimit.Violations
	switch {
	case integer && !number:
		return fmt.Errorf("playground: %w: %s must be a whole number, not of type %s", errUnreadable, e.Field, e.Value)
	case integer && strings.ContainsAny(literal, ".eE"):
		bad.Add(e.Field, json.Number(literal), "must be a whole number")
	default:
		bad.Add(e.Field, json.Number(literal), "is too large")
	}
	return bad.Err("playground")
}

func reply(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, hybridlimit.ErrInvalid), errors.Is(err, errUnreadable):
		refuse(w, http.StatusBadRequest, err)
	case errors.Is(err, errEnded):
		refuse(w, http.StatusServiceUnavailable, err)
	case err != nil:
		refuse(w, http.StatusConflict, err)
	default:
		write(w, http.StatusOK, v)
	}
}

func refuse(w http.ResponseWriter, status int, err error) {
	write(w, status, map[string]string{"error": err.Error()})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the client has gone
}
