package pequod

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"google.golang.org/protobuf/proto"

	pb "pequod/v1"
)

const (
	// silence is how long calls wait for an answer before their server is probed, and how long a probe waits.
	silence = 200 * time.Millisecond
	// quiet is the same for streams whose server need not say anything.
	quiet = time.Second
	// idleMax is how many streams of a server wait for batches.
	idleMax = 16
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

// try makes an attempt at this server. It is probed each time that some time has passed, 0 for never, and left if it gives
// no sign of life.
func (n *node) try(ctx context.Context, every time.Duration, attempt func(context.Context, *node) error) *Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if every > 0 {
		go n.guard(ctx, every, cancel)
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

// stream is a live call of Execute, which one batch has at a time: a stream for each batch would triple what a get takes.
type stream struct {
	pb.Pequod_ExecuteClient
	cancel context.CancelFunc
	number uint64
}

// stream returns a stream that waits, or a new one: it outlives the call that makes it.
func (n *node) stream(ctx context.Context) (*stream, error) {
	select {
	case waiting := <-n.idle:
		return waiting, nil
	default:
	}
	life, cancel := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, cancel)()
	made, err := n.stub.Execute(life)
	if err != nil {
		cancel()
		return nil, sent(ctx, err, false)
	}
	return &stream{made, cancel, 0}, nil
}

// execute runs a batch, and returns its reply in one piece.
func (n *node) execute(ctx context.Context, request *pb.ExecuteRequest) (*pb.ExecuteReply, error) {
	s, err := n.stream(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.cancel)
	reply, err := s.exchange(ctx, request)
	if !stop() || err != nil {
		s.cancel()
		return reply, err
	}
	select {
	case n.idle <- s:
	default:
		s.cancel()
	}
	return reply, nil
}

func (s *stream) exchange(ctx context.Context, request *pb.ExecuteRequest) (*pb.ExecuteReply, error) {
	s.number++
	request.Batch = s.number
	if err := s.Send(request); err != nil {
		isUnsent := errors.Is(err, io.EOF)
		if isUnsent {
			// The stream has ended before; Recv says why.
			_, err = s.Recv()
		}
		return nil, sent(ctx, err, !isUnsent)
	}
	whole, err := s.Recv()
	for more := whole; err == nil && more.More; {
		if more, err = s.Recv(); err == nil {
			statuses := append(whole.Statuses, more.Statuses...)
			token := Token{string(whole.Token)}.Merge(Token{string(more.Token)})
			proto.Merge(whole, more)
			whole.Statuses, whole.Token = statuses, []byte(token.raw)
		}
	}
	if err == nil && whole.Batch != s.number {
		err = fmt.Errorf("the server replied to batch %d of a stream before batch %d", whole.Batch, s.number)
	}
	return whole, err
}
