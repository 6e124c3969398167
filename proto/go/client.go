// Package pequod is the Go client of Pequod, an ordered key-value cache with cache joins: of one server, or of the
// servers of a cluster. Keys are strings of any bytes. A Client is for any number of goroutines.
//
// Calls that do no harm twice are repeated when a server goes away; adds, transactions and writes under a condition are
// among them, since they have request ids. docs/go.md shows what there is, docs/api.md says what the calls do.
package pequod

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"math"
	mathrand "math/rand/v2"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "pequod/v1"
)

// Options are settings of a client; nil stands for the zero value.
type Options struct {
	// Timeout is how long a call may take whose context has no deadline, and each part of a scan: 0 is 10 s.
	Timeout time.Duration
	// Retries is how often a call is tried again: 0 is 3 times. With a negative number it is not, and writes have no ids.
	Retries int
	// TLS has the authorities of the server's certificate, and the client's own certificate; nil is plain text.
	TLS *tls.Config
	// Token proves to the server who the client is.
	Token string
	// Insecure lets the token go to other machines in plain text.
	Insecure bool
}

// Client makes calls. A view of it, which Session and At return, shares its connections.
type Client struct {
	*cluster
	level     *pb.Freshness
	seen      *seen
	isSession bool
}

// Dial returns a client of the server at HOST:PORT, or of the cluster that pequod+cluster://HOST:PORT,HOST:PORT?zone=ZONE
// names by some of its servers. It connects with the first call.
func Dial(target string, options *Options) (*Client, error) {
	c := &cluster{target: target, nodes: map[string]*node{}, ranks: newRankings(), changed: make(chan struct{})}
	if options != nil {
		c.options = *options
	}
	if c.options.Timeout == 0 {
		c.options.Timeout = 10 * time.Second
	}
	if c.options.Retries == 0 {
		c.options.Retries = 3
	}
	c.life, c.end = context.WithCancel(context.Background())
	names := target
	names, c.isCluster = strings.CutPrefix(names, "pequod+cluster://")
	names, query, _ := strings.Cut(names, "?")
	asked, err := url.ParseQuery(query)
	c.zone = asked.Get("zone")
	if asked.Del("zone"); err != nil || len(asked) > 0 {
		return nil, refusal(codes.InvalidArgument, ReasonSetting, "target: it has no option but zone")
	}
	for _, address := range strings.Split(strings.TrimSuffix(names, "/"), ",") {
		n, err := c.dial(address)
		if err != nil {
			c.close()
			return nil, err
		}
		c.seeds = append(c.seeds, n)
	}
	if c.isCluster {
		go c.follow()
	} else {
		c.take(&pb.FollowClusterReply{Map: &pb.ClusterMap{}, Servers: []*pb.ClusterServer{
			{Id: target, Address: target, Roles: []string{"home", "compute"}, State: "ready"},
		}})
	}
	return &Client{cluster: c, seen: &seen{}}, nil
}

// Close ends the client and its views; their calls under way fail.
func (c *Client) Close() { c.close() }

// At returns a view whose reads are as fresh as a level says.
func (c *Client) At(level Freshness) *Client {
	view := *c
	view.level = level.level
	return &view
}

// Session returns a view whose reads never go back: they show at least what calls of the session have shown and written,
// and what the session had seen whose token this one begins with.
func (c *Client) Session(token Token) *Client {
	return &Client{cluster: c.cluster, level: c.level, seen: &seen{token: token}, isSession: true}
}

// Token returns the state of all replies to this client without its sessions, or of all to this session.
func (c *Client) Token() Token { return c.seen.get() }

// added returns what a read asks for that asks for a level: a session adds what it has seen.
func (c *Client) added(level *pb.Freshness) *pb.Freshness {
	token := c.seen.get()
	if !c.isSession || token == (Token{}) || level != nil && level.GetAfter() == nil {
		return level
	}
	merged := After(token.Merge(Token{string(level.GetAfter())})).level
	if level != nil {
		merged.WaitMs = level.WaitMs
	}
	return merged
}

// care is what may be done with a call whose outcome is not known.
type care int

const (
	once     care = iota // it must not be repeated
	harmless             // it does no harm twice
	reading              // and another server may have loaded what this one cannot load now
)

func careOf(level *pb.Freshness) care {
	if level.GetLatest() {
		return harmless
	}
	return reading
}

// requestID returns random bytes.
func requestID(count int) []byte {
	id := make([]byte, count)
	_, _ = rand.Read(id)
	return id
}

// call makes a call that has one reply.
func call[Q any, R interface{ GetHeader() *pb.Header }](
	ctx context.Context, c *Client, to route, care care,
	method func(pb.PequodClient, context.Context, Q, ...grpc.CallOption) (R, error), request Q,
) (got R, err error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	failed := c.run(ctx, to, care, func(ctx context.Context, n *node) (err error) {
		got, err = method(n.stub, ctx, request)
		return err
	})
	if failed != nil {
		return got, failed
	}
	c.seen.note(got.GetHeader().GetToken())
	return got, nil
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
		failed = gone(c.target + ": no server of it does this")
		var lacking *Error
	round:
		for _, n := range nodes {
			failed = n.try(ctx, guarded(care != once && len(nodes) > 1, silence), attempt)
			switch {
			case failed == nil:
				return nil
			case failed.Reason == ReasonUnavailable && (failed.Unapplied || care != once):
			case failed.Reason == ReasonNotHome && c.isCluster:
				c.learn(failed)
				break round
			case care == reading && isUnloaded(failed):
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

// isUnloaded returns whether a server lacks what a read needs while its homes are away.
func isUnloaded(e *Error) bool {
	return e.Reason == ReasonBackingUnavailable || e.Reason == ReasonBackingStale
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
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
