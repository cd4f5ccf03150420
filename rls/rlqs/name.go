package rlqs

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/rls/internal/rules"
)

// name stands for a bucket: a hash, because an Envoy's clients choose the values.
type name [sha256.Size]byte

// nameOf returns the name of a bucket.
func nameOf(bucket map[string]string) (n name, err error) {
	if len(bucket) == 0 {
		return n, status.Error(codes.InvalidArgument, "rlqs: a bucket must have entries")
	}
	if len(bucket) > rules.MaxBucket {
		return n, status.Errorf(
			codes.InvalidArgument, "rlqs: a bucket must have at most %d entries, not %d", rules.MaxBucket, len(bucket),
		)
	}
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(bucket)) {
		for _, text := range [2]string{key, bucket[key]} {
			_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(text)))) // it never fails
			_, _ = h.Write([]byte(text))
		}
	}
	return name(h.Sum(nil)), nil
}
