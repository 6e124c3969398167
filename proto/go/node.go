package pequod

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
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
	// idle are streams that wait for batches.
	idle chan *stream
	// silent is when it may be asked again after it gave no sign of life, in nanoseconds since 1970.
	silent atomic.Int64
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
	return &node{address: address, connection: connection, stub: pb.NewPequodClient(connection), idle: make(chan *stream, idleMax)}, nil
}

func (n *node) isAway() bool {
	return n.connection.GetState() == connectivity.TransientFailure || time.Now().UnixNano() < n.silent.Load()
}

// try makes an attempt at this server. It is probed each time that it has said nothing for some time, 0 for never, and left
// if it gives no sign of life.
func (n *node) try(ctx context.Context, guard time.Duration, attempt func(context.Context, *node) error) *Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if guard > 0 {
		go n.guard(ctx, guard, cancel)
	}
	return errorOf(ctx, attempt(ctx, n))
}

func (n *node) guard(ctx context.Context, every time.Duration, leave context.CancelCauseFunc) {
	for wait(ctx, every) {
		if !n.isAlive(ctx) && ctx.Err() == nil {
			n.silent.Store(time.Now().Add(quiet).UnixNano())
			leave(refusal(codes.Unavailable, ReasonUnavailable, n.address+" gives no sign of life"))
			return
		}
	}
}

// isAlive returns whether the server gives a sign of life of any kind, and takes calls.
func (n *node) isAlive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	told, err := grpc_health_v1.NewHealthClient(n.connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if failed := errorOf(ctx, err); failed != nil {
		return failed.Reason != ReasonUnavailable && failed.Reason != ReasonDeadlineExceeded
	}
	return told.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING
}
