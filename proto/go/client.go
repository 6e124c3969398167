// Package pequod is the Go client of Pequod, an ordered key-value cache with cache joins: of one server, or of the
// servers of a cluster. Keys are strings of any bytes. A Client is for any number of goroutines.
//
// Calls that do no harm twice are repeated when a server goes away; adds, transactions and writes under a condition are
// among them, since they have request ids. docs/go.md shows what there is, docs/api.md says what the calls do.
package pequod

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/url"
	"strings"
	"time"

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
	c := &cluster{target: target, ranks: newRanking()}
	c.tell(nil, nil, nil)
	if options != nil {
		c.options = *options
	}
	c.options.Timeout = cmp.Or(c.options.Timeout, 10*time.Second)
	c.options.Retries = cmp.Or(c.options.Retries, 3)
	c.life, c.end = context.WithCancel(context.Background())
	names, query, _ := strings.Cut(target, "?")
	names, c.isCluster = strings.CutPrefix(names, "pequod+cluster://")
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
		}}, nil)
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
func (c *Client) Token() Token { return c.seen.note(nil) }

// added returns what a read asks for that asks for a level: a session adds what it has seen.
func (c *Client) added(level *pb.Freshness) *pb.Freshness {
	token := c.Token()
	if !c.isSession || token == (Token{}) || level != nil && level.GetAfter() == nil {
		return level
	}
	merged := After(token.Merge(Token{string(level.GetAfter())})).level
	if level != nil {
		merged.WaitMs = level.WaitMs
	}
	return merged
}
