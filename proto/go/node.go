package pequod

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	pb "pequod/v1"
)

const (
	// silence is how long calls wait for an answer before their server is probed, and how long a probe waits.
	silence = 200 * time.Millisecond
	// quiet is the same for streams whose server need not say anything.
	quiet = time.Second
)

// node is a server as this client sees it.
type node struct {
	address    string
	connection *grpc.ClientConn
	stub       pb.PequodClient
	life       context.Context
	end        context.CancelFunc
	// silent is when it may be asked again after it gave no sign of life, in nanoseconds since 1970.
	silent  atomic.Int64
	mutex   sync.Mutex
	streams []*stream
}

// bearer sends the token with each call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}
func (b bearer) RequireTransportSecurity() bool { return false }

func (c *cluster) dial(address string) (*node, error) {
	host, _, err := net.SplitHostPort(address)
	isUnix := strings.HasPrefix(address, "unix:")
	if err != nil && !isUnix {
		return nil, refusal(codes.InvalidArgument, ReasonSetting, fmt.Sprintf("target: %q is no HOST:PORT", address))
	}
	options := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		// A server that comes back is found within two seconds; gRPC would wait for up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second, Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second,
		}}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
	isLocal := isUnix || host == "localhost" || net.ParseIP(host).IsLoopback()
	if isLocal {
		// A proxy from the environment would see the token.
		options = append(options, grpc.WithNoProxy())
	}
	if c.options.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(c.options.TLS)))
	} else if c.options.Token != "" && !c.options.Insecure && !isLocal {
		return nil, refusal(codes.InvalidArgument, ReasonSetting, "Token: it would go to "+address+
			" in plain text; set TLS, or Insecure if nobody else can listen there")
	}
	if c.options.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(c.options.Token)))
	}
	connection, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, refusal(codes.InvalidArgument, ReasonSetting, "target: "+err.Error())
	}
	n := &node{address: address, connection: connection, stub: pb.NewPequodClient(connection)}
	n.life, n.end = context.WithCancel(c.life)
	return n, nil
}

func (n *node) close() {
	n.end()
	_ = n.connection.Close()
}

func (n *node) isAway() bool {
	return n.connection.GetState() == connectivity.TransientFailure || time.Now().UnixNano() < n.silent.Load()
}

func (n *node) probe(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
	return grpc_health_v1.NewHealthClient(n.connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
}

// reach waits for a connection: what is sent without one may go out later, and the caller would not know it.
func (n *node) reach(ctx context.Context) *Error {
	for {
		state := n.connection.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			// The error of a call says why.
			_, err := n.probe(ctx)
			if failed := errorOf(ctx, err); failed != nil {
				failed.Unapplied = true
				return failed
			}
			return nil
		}
		n.connection.Connect()
		if !n.connection.WaitForStateChange(ctx, state) {
			failed := errorOf(ctx, ctx.Err())
			failed.Unapplied = true
			return failed
		}
	}
}

// guarded returns how often a server is probed that is silent, 0 for never.
func guarded(is bool, every time.Duration) time.Duration {
	if is {
		return every
	}
	return 0
}

// try makes an attempt at this server; it ends when the server gives no sign of life, if it is guarded.
func (n *node) try(ctx context.Context, guard time.Duration, attempt func(context.Context, *node) error) *Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.life, func() { cancel(gone(n.address + " is no server of this client any more")) })()
	if guard > 0 {
		go n.guard(ctx, guard, cancel)
	}
	if failed := n.reach(ctx); failed != nil {
		return failed
	}
	return errorOf(ctx, attempt(ctx, n))
}

func (n *node) guard(ctx context.Context, every time.Duration, leave context.CancelCauseFunc) {
	for wait(ctx, every) {
		if !n.isAlive(ctx) && ctx.Err() == nil {
			n.silent.Store(time.Now().Add(quiet).UnixNano())
			leave(&Error{Code: codes.Unavailable, Reason: ReasonUnavailable, Message: n.address + " gives no sign of life"})
			return
		}
	}
}

// isAlive returns whether the server gives a sign of life of any kind, and takes calls.
func (n *node) isAlive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	told, err := n.probe(ctx)
	if failed := errorOf(ctx, err); failed != nil {
		return failed.Reason != ReasonUnavailable && failed.Reason != ReasonDeadlineExceeded
	}
	return told.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING
}
