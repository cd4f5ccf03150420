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

// order is a handler that reads what is asked for, and has it done.
func order[Q any](do func(Q) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if read(w, r, &q) {
			reply(w, struct{}{}, do(q))
		}
	}
}

// maxBody is far more than any order takes, in bytes.
const maxBody = 4 << 10

var errUnreadable = errors.New("the request cannot be read")

// read reads an order into what q points to. It answers one that cannot be read.
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

// decode reads one JSON object, and nothing after it. Fields that nobody knows
// are refused.
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

// wrongType says what encoding/json says of Go types in terms of the field.
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
	json.NewEncoder(w).Encode(v) // who does not read it has gone
}
