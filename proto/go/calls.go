package pequod

import (
	"context"
	"crypto/rand"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	pb "pequod/v1"
)

// care is what may be done with a call whose outcome is not known.
type care struct {
	// isHarmless says that it does no harm twice.
	isHarmless bool
	// isRead says that another server may have loaded what this one cannot load now.
	isRead bool
	// silence is how long its server may say nothing before it is probed, where there is another one; 0: for ever.
	silence time.Duration
}

var (
	once      = care{}
	harmless  = care{isHarmless: true, silence: silence}
	following = care{isHarmless: true, silence: quiet}
	reading   = care{isHarmless: true, isRead: true, silence: silence}
)

func careOf(method string, request any) care {
	switch request := request.(type) {
	case *pb.TransactionRequest:
		if len(request.RequestId) > 0 || !hasWrites(request) {
			return harmless
		}
	case interface{ GetRequestId() []byte }:
		if len(request.GetRequestId()) > 0 {
			return harmless
		}
	case interface{ GetFreshness() *pb.Freshness }:
		return careOfReads(request.GetFreshness())
	default:
		if harmlessTwice[method] {
			return harmless
		}
	}
	return once
}

func careOfReads(level *pb.Freshness) care {
	if level.GetLatest() {
		return harmless
	}
	return reading
}

// routeOf returns where a call goes: a home does not know which keys are computed, so that most go where keys are read.
func routeOf(request any) route {
	var keys [][]byte
	switch request := request.(type) {
	case *pb.TransactionRequest:
		keys = slices.Concat(request.CompareKeys, request.Then.GetArguments(), request.Otherwise.GetArguments())
	case *pb.RemoveRangeRequest:
		return writes(string(request.First))
	case interface{ GetKey() []byte }:
		keys = [][]byte{request.GetKey()}
	case interface{ GetKeys() [][]byte }:
		keys = request.GetKeys()
	case interface{ GetFirst() []byte }:
		keys = [][]byte{request.GetFirst()}
	case interface{ GetRange() *pb.Range }:
		if request.GetRange() != nil {
			keys = [][]byte{request.GetRange().First}
		}
	}
	if len(keys) == 0 {
		return anywhere
	}
	return reads(string(keys[0]))
}

// Invoke makes a call of a generated stub: pb.NewPequodClient(client) has the calls that Client itself does not have. They
// go where their keys are read, and those that do no harm twice are repeated.
func (c *Client) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	failed := c.run(ctx, routeOf(request), careOf(method, request), func(ctx context.Context, n *node) error {
		var reached peer.Peer
		err := n.connection.Invoke(ctx, method, request, reply, slices.Concat(options, []grpc.CallOption{grpc.Peer(&reached)})...)
		return sent(ctx, err, reached.Addr != nil)
	})
	if failed != nil {
		return failed
	}
	if told, ok := reply.(interface{ GetHeader() *pb.Header }); ok {
		c.seen.note(told.GetHeader().GetToken())
	}
	return nil
}

// NewStream begins a stream of a generated stub, at the first server that is there.
func (c *Client) NewStream(
	ctx context.Context, of *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	nodes, failed := c.candidates(ctx, anywhere)
	if failed != nil {
		return nil, failed
	}
	if len(nodes) == 0 {
		return nil, c.deserted()
	}
	return nodes[0].connection.NewStream(ctx, of, method, options...)
}

func (c *Client) stub() pb.PequodClient { return pb.NewPequodClient(c) }

// deserted returns the error of a call that no server can take.
func (c *cluster) deserted() *Error {
	failed := refusal(codes.Unavailable, ReasonUnavailable, c.target+": no server of it does this")
	failed.Unapplied = true
	return failed
}

func (c *cluster) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.options.Timeout)
}

// run has a server do something: the next one if it goes away, and all anew after a pause.
func (c *cluster) run(ctx context.Context, to route, care care, attempt func(context.Context, *node) error) *Error {
	for tries := 1; ; tries++ {
		nodes, failed := c.candidates(ctx, to)
		if failed != nil {
			return failed
		}
		failed = c.deserted()
		var lacking *Error
		silence := care.silence
		if len(nodes) == 1 {
			silence = 0
		}
	round:
		for _, n := range nodes {
			failed = n.try(ctx, silence, attempt)
			switch {
			case failed == nil:
				return nil
			case failed.Reason == ReasonUnavailable && (failed.Unapplied || care.isHarmless):
			case failed.Reason == ReasonNotHome && c.isCluster:
				c.learn(failed)
				break round
			case care.isRead && failed.isUnloaded():
				lacking = failed
			case lacking != nil && failed.Reason == ReasonDeadlineExceeded:
				return lacking
			default:
				return failed
			}
		}
		if lacking != nil {
			return lacking
		}
		if tries > c.options.Retries || !wait(ctx, pause(tries)) {
			return failed
		}
	}
}

// pause returns the time after some failed tries, half of it random, so that clients do not return at once.
func pause(tries int) time.Duration {
	longest := min(0.1*math.Pow(3, float64(tries-1)), 2)
	return time.Duration(longest * (0.5 + 0.5*mathrand.Float64()) * float64(time.Second))
}

// wait returns whether a time has passed before the context ends.
func wait(ctx context.Context, length time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= length {
		return false
	}
	select {
	case <-time.After(length):
		return true
	case <-ctx.Done():
		return false
	}
}

// requestID returns random bytes.
func requestID(count int) []byte {
	id := make([]byte, count)
	_, _ = rand.Read(id)
	return id
}
