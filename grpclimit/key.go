package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"net/textproto"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/internal/clientaddr"
)

// Call is a call of a client, as a KeyFunc sees it.
type Call struct {
	// Method is the full method: "/package.Service/Method".
	Method string
	// Request is the request of a unary call, or the message that Limit.Cost is called for. Nil: the start of a stream.
	Request any
	// Unregistered is true for a stream of grpc.UnknownServiceHandler, whose Method the client can invent. It is also
	// true for a stream of a service that was registered with a nil implementation, because gRPC shows no difference.
	Unregistered bool
}

// KeyFunc returns the key that a limiter counts a call for. If it returns "", the limit does not apply to the call,
// unless the limit is Required; Config.NoKey answers a call to which no limit applies. A KeyFunc must be safe for
// concurrent use.
//
// Use only values that a proxy or a check of yours guarantees. If a client chooses its key freely, it can take a new
// key, and so a fresh limit, for each call, or use up another client's limit.
//
// The keys of this package start with their kind: "user:", "ip:", "apikey:", "bearer:", "route:". Package clientkey
// makes the same keys, for LimitFor, limit files and tests. They are the keys of package httplimit for the same client,
// so an HTTP server and a gRPC server can share a limit. A function that returns a KeyFunc and no error panics if an
// argument is invalid, for example if it is nil.
type KeyFunc func(ctx context.Context, c Call) string

// Everyone returns a KeyFunc with one key for all calls, for a limit of the whole service.
func Everyone() KeyFunc { return func(context.Context, Call) string { return clientkey.Everyone } }

// Method returns a KeyFunc with a key per full method. The key is clientkey.Route of it: "route:/shop.Orders/List". All
// streams of grpc.UnknownServiceHandler share one key (Call.Unregistered).
func Method() KeyFunc {
	return func(_ context.Context, c Call) string {
		switch {
		case c.Unregistered:
			return clientkey.Route(clientkey.Unmatched)
		case c.Method == "":
			return ""
		}
		return clientkey.Route(c.Method)
	}
}

// IPConfig configures ClientIP. Proxies write IPConfig.Header into the metadata of a call, under its name in lower
// case.
type IPConfig = httplimit.IPConfig

// Peer returns the KeyFunc of ClientIP for the zero IPConfig: the address of the connection, for IPv6 its /64. It is
// for servers without a proxy: behind a proxy, all calls have the proxy's key. A call without an address, such as one
// through a Unix socket, has no key.
func Peer() KeyFunc { return keyOf(&clientaddr.Peer) }

// ClientIP returns a KeyFunc with a key per client address. Its error (ErrInvalid) lists everything wrong with cfg.
func ClientIP(cfg IPConfig) (KeyFunc, error) {
	cfg.Header = textproto.CanonicalMIMEHeaderKey(cfg.Header)
	client, err := clientaddr.Address(cfg).Checked("grpclimit")
	if err != nil {
		return nil, err
	}
	return keyOf(&client), nil
}

func keyOf(client *clientaddr.Address) KeyFunc {
	field := strings.ToLower(client.Header)
	return func(ctx context.Context, _ Call) string {
		addr := peerAddr(ctx)
		var lines []string
		if client.Reads(addr) {
			lines = metadata.ValueFromIncomingContext(ctx, field)
		}
		return client.Key(addr, lines)
	}
}

// peerAddr returns the address of the connection. It is invalid if there is none.
func peerAddr(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		if tcp == nil {
			return netip.Addr{}
		}
		addr, _ := netip.AddrFromSlice(tcp.IP)
		return addr
	}
	return clientaddr.PeerAddr(p.Addr.String())
}

// Metadata returns a KeyFunc for the value of a metadata field such as "x-api-key". The key is clientkey.APIKey: a hash
// of the value, the same as that of httplimit.APIKey for a header of this name. If the field has several values, the
// first counts. A call without the field has no key. A call with the field always has one, even if the value is empty.
//
// The hash is SHA-256, cut to 128 bits. With a secret it is an HMAC. The secret is empty for none, or has 32 to 1024
// bytes. Metadata panics if the secret has another length, or if name is empty.
//
// Each value has a limit of its own, so a client that invents values evades the limit. Check the value before (When),
// or limit by address too.
func Metadata(name string, secret hybridlimit.Secret) KeyFunc {
	const of = "grpclimit: Metadata"
	clientaddr.Must(of, name != "", "name", name, "must not be empty")
	clientaddr.MustSecret(of, secret)
	header, field := textproto.CanonicalMIMEHeaderKey(name), strings.ToLower(name)
	return func(ctx context.Context, _ Call) string {
		v := metadata.ValueFromIncomingContext(ctx, field)
		if len(v) == 0 {
			return ""
		}
		return clientkey.APIKey(secret, header, v[0])
	}
}

// Bearer returns a KeyFunc for the token in the metadata field "authorization". The key is a hash of the token, the
// same as that of httplimit.Bearer. A call without the field has no key. All calls whose field is not a bearer token
// share one key. Bearer panics as Metadata does for the secret.
func Bearer(secret hybridlimit.Secret) KeyFunc {
	clientaddr.MustSecret("grpclimit: Bearer", secret)
	return func(ctx context.Context, _ Call) string {
		v := metadata.ValueFromIncomingContext(ctx, "authorization")
		if len(v) == 0 {
			return ""
		}
		return clientkey.Authorization(secret, v[0])
	}
}

// User returns a KeyFunc for the user of a call: the name that your authentication has checked and stored in the call's
// context. The function of returns it. The key is clientkey.User, "user:alice", or with a secret an HMAC of the name,
// as in httplimit.User. Without a user ("") the call has no key. The interceptor of your authentication must run
// before. User panics if of is nil, and as Metadata does for the secret.
func User(secret hybridlimit.Secret, of func(ctx context.Context) string) KeyFunc {
	clientaddr.Must("grpclimit: User", of != nil, "of", nil, "is required")
	clientaddr.MustSecret("grpclimit: User", secret)
	return func(ctx context.Context, _ Call) string { return clientkey.User(secret, of(ctx)) }
}

// Subject is User.
//
// Deprecated: use User.
func Subject(secret hybridlimit.Secret, of func(ctx context.Context) string) KeyFunc {
	return User(secret, of)
}

// Join returns a KeyFunc that combines several keys, for example user and method. If one of them is empty, the result
// is empty. Different lists of keys give different results.
func Join(keys ...KeyFunc) KeyFunc {
	clientaddr.MustKeys("grpclimit: Join", keys, isNilKey)
	return func(ctx context.Context, c Call) string {
		var room [4]string // more parts cost an allocation
		parts := room[:0]
		for _, key := range keys {
			k := key(ctx, c)
			if k == "" {
				return "" // the other functions need not run
			}
			parts = append(parts, k)
		}
		return clientkey.Join(parts...)
	}
}

// First returns a KeyFunc with the first key that is not empty, for example the API key, or else the address. A client
// that can choose the first key can choose its limit: accept only checked keys there (When).
func First(keys ...KeyFunc) KeyFunc {
	clientaddr.MustKeys("grpclimit: First", keys, isNilKey)
	return func(ctx context.Context, c Call) string {
		for _, key := range keys {
			if k := key(ctx, c); k != "" {
				return k
			}
		}
		return ""
	}
}

// When returns a KeyFunc for the calls that meet a condition. It is empty for other calls: the limit does not apply to
// them.
func When(condition func(ctx context.Context, c Call) bool, key KeyFunc) KeyFunc {
	clientaddr.Must("grpclimit: When", condition != nil, "condition", nil, "is required")
	clientaddr.Must("grpclimit: When", key != nil, "key", nil, "is required")
	return func(ctx context.Context, c Call) string {
		if !condition(ctx, c) {
			return ""
		}
		return key(ctx, c)
	}
}

func isNilKey(key KeyFunc) bool { return key == nil }
