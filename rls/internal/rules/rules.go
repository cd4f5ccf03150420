// Package rules reads the configuration of Envoy's rate limit service (github.com/envoyproxy/ratelimit), and finds the
// rule of a descriptor. A file that the service of Envoy accepts has the same meaning here, with the exceptions in
// Parse.
package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit"
)

// File is one YAML file.
type File struct {
	Name string // in errors
	Data []byte
}

// Error is one violation.
type Error struct {
	File string
	Line int    // from 1; 0: the whole file
	Path string // of the descriptor or field, for example "mongo.database_users"; empty: the whole file
	Text string

	Kind  Kind
	Value string // the text in the file that Kind is about; empty for some kinds

	order int // of the file
}

// Error returns the violation with its place.
func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text = fmt.Sprintf("%s:%d", text, e.Line)
	}
	if e.Path != "" {
		text += ": " + e.Path
	}
	return text + ": " + e.Text
}

// Kind is the kind of a violation.
type Kind uint8

// The kinds that the service of Envoy refuses too, and Other.
const (
	Other            Kind = iota
	NotYAML               // Value: the message of the parser
	EmptyDomain           // also: no domain
	DuplicateDomain       // Value: the domain
	EmptyKey              // of a descriptor
	DuplicateRule         // Value: the path of the descriptor
	UnknownField          // Value: its name
	FieldNotText          // the name of a field is no text. Value: the name
	ElementNotObject      // an element of a list. Value: the element
	BadUnit               // Value: the unit
	UnitOfUnlimited       // unlimited has a unit. Value: the unit
	EmptyReplaces         // an element of replaces has no name
	ReplacesSelf          // Value: the name
	ShareNotWildcard      // share_threshold without a wildcard. Value: the descriptor
)

// Set has the rules of all domains. It does not change, and is safe for concurrent use. The zero Set has no rules.
type Set struct {
	domains  map[string]*node
	rules    []*Rule
	warnings []*Error
}

// Rules returns all rules, in the order of the files.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// Domains returns the domains, sorted.
func (s *Set) Domains() []string {
	return slices.Sorted(maps.Keys(s.domains))
}

// Warnings returns the places that are valid and have no effect, in the order of the files: the service of Envoy
// accepts them too. An example is shadow_mode inside rate_limit.
func (s *Set) Warnings() []*Error { return slices.Clone(s.warnings) }

// Rule is the rate_limit of a descriptor, or its floor.
type Rule struct {
	Domain string
	Path   string // "domain.key_value.key", unique in a Set: of equal paths, the later ones end in #2, #3 and so on
	File   string
	Line   int

	Limit           hybridlimit.Limit                   // with its algorithm; zero if Unlimited; blocked if RequestsPerUnit is 0
	RequestsPerUnit uint32                              // as written
	Unit            pb.RateLimitResponse_RateLimit_Unit // as written
	Multiplier      uint32                              // of the unit, as written; 0: one
	Overshoot       float64                             // part of the limit that may be admitted before Redis knows; 0: none
	Split           int                                 // number of parts of a key; 0: keys are whole

	Name           string
	Replaces       []string
	Unlimited      bool
	Shadow         bool
	Quota          bool
	DetailedMetric bool
	Metadata       *structpb.Struct // for Envoy, if the rule admits; shared, so nobody may change it; nil: none

	// Of is the rule whose limit and counts the calls of a descriptor with a floor use; nil: the rule has a limit of
	// its own. Limit, Name, Replaces and so on are those of Of. Shadow and Quota are set if one of the two descriptors
	// sets them.
	Of    *Rule
	Floor float64 // part of the burst that these calls leave to others, 0 to 0.5

	metric string // Path without the ending that makes it unique
	level  int    // number of the entries for which the rule counts
}

// Match is the rule of a descriptor.
type Match struct {
	Rule *Rule // nil: no rule applies
	// Key is the text for which the rule counts: domain, keys and values, so that different counters have different
	// texts. With a floor it is that of the descriptor with the limit. It has at most 200 bytes: a longer text is
	// replaced by a hash of 128 bits.
	Key string
	// Metric is the name under which the rule service of Envoy counts: with the values that detailed_metric and
	// value_to_metric add.
	Metric string
}

// node is a descriptor of the configuration, or a domain.
type node struct {
	name          string // "key_value", or "key"
	rule          *Rule  // nil: neither rate_limit nor floor
	valueToMetric bool
	share         bool // the rule counts for the wildcard, and not for each value

	children map[string]*node // by name
	longest  int              // bytes of the longest name in children
	// Wildcards are the children whose names have one asterisk, at the end. Patterns are those with other asterisks. The
	// first one of both in the files wins.
	wildcards map[string]*node // by name without the asterisk
	lengths   []int            // of the keys of wildcards: ascending, each once
	patterns  []*node          // in the order of the files
	stars     int              // the number of both
	order     int              // among both, of the parent
	parts     []string         // of a pattern: the texts between its asterisks
	key       string
	regex     *regexp.Regexp // of a pattern: what the value must be; nil: it has asterisks
	steps     int            // of the programs of all expressions among the patterns
}
